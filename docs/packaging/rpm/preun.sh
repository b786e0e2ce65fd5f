# $1 is 0 if the package is removed, 1 if it is replaced by a newer one. State and user stay.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now crawlgate.service || :
fi
:
