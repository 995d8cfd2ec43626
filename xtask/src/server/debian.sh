# Installs a package on Debian or Ubuntu, and leaves no service running, now or after a restart.
# $1 package     $2 its service
set -eu
export DEBIAN_FRONTEND=noninteractive
package=$1
service=$2

# If it is there already, its service is the owner's business.
if dpkg-query --show --showformat '${Status}\n' "$package" 2>/dev/null | grep -q ' ok installed$'; then
    exit 0
fi

policy=
cluster=
clean_up() {
    [ -z "$policy" ] || rm -f "$policy"
    [ -z "$cluster" ] || restore_cluster_settings
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# The package's scripts ask this file whether they may start the service; 101 means no. A machine that
# has one already (a container, for example) has its reasons, so it stays.
if [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

# PostgreSQL's package creates a database cluster, unless this file forbids it. One that is there is the
# owner's, and stays.
if [ "$package" = postgresql ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    cluster=/etc/postgresql-common/createcluster.conf
    mkdir -p "${cluster%/*}"
    echo 'create_main_cluster = false' >"$cluster"
fi

# The file that the package would have installed; none, if there is none, or the installation failed.
restore_cluster_settings() {
    rm -f "$cluster"
    if [ -e "/usr/share/postgresql-common/${cluster##*/}" ]; then
        cp "/usr/share/postgresql-common/${cluster##*/}" "$cluster"
    fi
}

install() {
    apt-get install -qq --yes --no-install-recommends \
        -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=60 "$package"
}
# The package lists may be missing or out of date.
install || { apt-get update -qq && install; }

# The package enables its service for the next start of the machine, and a policy that was there before
# may have let it start. Where a tool is missing there is no such service either.
systemctl disable --quiet "$service" 2>/dev/null || true
service "$service" stop >/dev/null 2>&1 || true
