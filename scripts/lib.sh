# Functions that several scripts use. Source it; do not run it.

# install_package PACKAGE: installs a Debian package. Fails unless run as root on Debian.
install_package() {
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then return 1; fi
    echo "installing the Debian package $1" >&2
    without_services apt_install "$1" ||
        { apt-get update -qq && without_services apt_install "$1"; }
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

# Runs a command that installs packages and keeps their services from starting: a policy-rc.d
# that exits with 101 forbids it.
without_services() {
    local policy=/usr/sbin/policy-rc.d status
    if [[ -e $policy ]]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@"
    status=$?
    rm -f "$policy"
    return "$status"
}

# check_names KIND "ALLOWED NAMES" NAME...: exits if one of the names is not allowed.
check_names() {
    local kind="$1" allowed="$2" name
    shift 2
    for name in "$@"; do
        if [[ " $allowed " != *" $name "* ]]; then
            echo "unknown $kind '$name'; expected one of: $allowed" >&2
            exit 2
        fi
    done
}

# Prints a port without a listener, below the ephemeral ports.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    done
    echo "$port"
}
