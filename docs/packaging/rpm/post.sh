# $1 is 1 for an installation, 2 for an upgrade.
install -d -o crawlgate -g crawlgate -m 755 /var/lib/crawlgate
install -d -o crawlgate -g crawlgate -m 750 /var/log/crawlgate
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    [ "$1" -ne 1 ] || systemctl preset crawlgate.service || :
fi
:
