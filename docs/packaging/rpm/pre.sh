# Creates the service's user before the files are installed.
getent passwd crawlgate >/dev/null ||
    useradd --system --user-group --no-create-home --home-dir /var/lib/crawlgate --shell /sbin/nologin crawlgate
