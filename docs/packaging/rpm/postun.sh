# $1 is 0 if the package was removed, 1 if it was replaced by a newer one.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    [ "$1" -eq 0 ] || systemctl try-restart crawlgate.service || :
fi
:
