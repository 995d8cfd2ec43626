# Installs redis-server on Debian or Ubuntu, and leaves no service running, now or after a restart.
set -eu
export DEBIAN_FRONTEND=noninteractive

# If it is there already, its service is the owner's business.
if command -v redis-server >/dev/null; then
    exit 0
fi

# The package's scripts ask this file whether they may start the service; 101 means no. A machine that
# has one already (a container, for example) has its reasons, so it stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

install() {
    apt-get install -qq --yes --no-install-recommends \
        -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=60 redis-server
}
# The package lists may be missing or out of date.
install || { apt-get update -qq && install; }

# The package enables its service for the next start of the machine, and a policy that was there before
# may have let it start. Where a tool is missing there is no such service either.
systemctl disable --quiet redis-server 2>/dev/null || true
service redis-server stop >/dev/null 2>&1 || true
