#!/usr/bin/env bash
# A Debian of its own for each PostgreSQL major, in which the suites run as they run outside.
#
#   chroot.sh run MAJOR COMMAND [ARG]...   COMMAND in a fresh copy of the sources, after the set-up that is missing
#   chroot.sh setup MAJOR                  the set-up alone
#   chroot.sh remove MAJOR | --all
#
# As root, on any system with debootstrap. The folders are kept, 1 to 2 GB each, in .run/chroot, or where BATON_CHROOTS
# says. Every run has its own mounts, processes and shared memory, so that nothing of it outlives it; its logs stay in
# the copy, MAJOR/src/.run. The packages come from the Debian mirror of apt's own sources, or of DEBIAN_MIRROR.

# shellcheck source=tests/support/lib.sh
. "$(dirname "$0")/lib.sh"

folder=${BATON_CHROOTS:-${BATON_RUN_DIR:-$ROOT/.run}/chroot}

# the release that has the major, and the suite that adds it where the release alone does not
release_of() {
  case $1 in
    15) echo bookworm ;;
    17) echo trixie ;;
    18) echo forky ;;
    19) echo sid experimental ;;
    *) die "no release of Debian known here has PostgreSQL $1 (15, 17, 18 and 19 are)" ;;
  esac
}

mirrors_of_apt() { apt-get indextargets --format '$(LABEL) $(REPO_URI)' | sed -n 's,^Debian \([a-z+]*://.*[^/]\)/*$,\1,p'; }

mirror() {
  local found=${DEBIAN_MIRROR:-}
  if [ -z "$found" ] && command -v apt-get >/dev/null; then
    found=$(mirrors_of_apt | head -n 1)
    # whose a source is, is known once its lists are there
    if [ -z "$found" ]; then
      apt-get update -q >&2 || true
      found=$(mirrors_of_apt | head -n 1)
    fi
  fi
  [ -n "$found" ] || die "apt's sources name no Debian mirror: set DEBIAN_MIRROR"
  printf '%s\n' "$found"
}

# inside DIR COMMAND [ARG]...: COMMAND is a child of the first process there, which has to see to orphans
inside() {
  local dir=$1
  shift
  local -a more=()
  local name
  for name in CI JOBS TESTS SUITES PG_TEST_TIMEOUT_DEFAULT http_proxy https_proxy no_proxy; do
    if [ -n "${!name:-}" ]; then more+=("$name=${!name}"); fi
  done
  # npm asks whom it asks outside, and trusts whom it trusts there
  if command -v npm >/dev/null; then
    more+=("npm_config_registry=$(npm config get registry)")
    local ca
    ca=$(npm config get cafile)
    if [ -f "$ca" ]; then cp "$ca" "$dir/etc/ssl/npm_ca.pem" && more+=(npm_config_cafile=/etc/ssl/npm_ca.pem); fi
  fi
  # shellcheck disable=SC2016
  unshare --mount --pid --ipc --fork --kill-child sh -c '
    set -e
    dir=$1 && shift
    mount -t proc proc "$dir/proc"
    mkdir -p "$dir/dev/shm"
    for d in dev/shm tmp run; do mount -t tmpfs -o mode=1777 "$d" "$dir/$d"; done
    exec chroot "$dir" env -i HOME=/root LANG=C.UTF-8 \
      PATH=/usr/lib/ccache:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
  ' sh "$dir" ${more[@]+"${more[@]}"} PG_CONFIG="/usr/lib/postgresql/$major/bin/pg_config" PG_MAJOR="$major" \
    bash -c 'cd /src 2>/dev/null || cd /; "$@"; exit $?' bash "$@"
}

# A machine without pgTAP for its major gets the one of an earlier major: pgTAP is SQL alone.
pgtap_of_another_major() {
  local extension=/usr/share/postgresql/$major/extension
  if [ -e "$dir$extension/pgtap.control" ]; then return; fi
  # shellcheck disable=SC2016
  inside "$dir" bash -ec '
    package=$(apt-cache pkgnames postgresql- | grep -E "^postgresql-[0-9]+-pgtap$" | sort -V | tail -n 1)
    test -n "$package"
    cd /tmp && apt-get download -q "$package" && dpkg -x ./"$package"_*.deb pgtap
    cp pgtap/usr/share/postgresql/*/extension/pgtap* "$1"
    echo "chroot.sh: there is no package of pgTAP for this major; its SQL is that of $package"
  ' bash "$extension" >&2
}

setup() {
  local from=$SECONDS site suite also
  local -a script=()
  if [ ! -e "$dir/etc/pg_baton_chroot" ]; then
    "$SUPPORT/setup.sh" chroot
    site=$(mirror)
    read -r suite also <<< "$(release_of "$major")"
    # the scripts of all releases of Debian are the same, but an older debootstrap does not know a newer release
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/sid)
    say "chroot.sh: setting up Debian $suite in $dir"
    rm -rf "$dir"
    mkdir -p "$dir"
    unshare --mount --fork --kill-child debootstrap --variant=minbase "$suite" "$dir" "$site" ${script[@]+"${script[@]}"} \
      > "$dir.log" 2>&1 || { tail -n 5 "$dir.log" >&2; die "debootstrap failed; $dir.log says why"; }
    printf '#!/bin/sh\nexit 101\n' > "$dir/usr/sbin/policy-rc.d"
    chmod 755 "$dir/usr/sbin/policy-rc.d"
    echo force-unsafe-io > "$dir/etc/dpkg/dpkg.cfg.d/pg_baton"
    apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-)' > "$dir/etc/apt/apt.conf.d/pg_baton" || true
    if [ -n "$also" ]; then
      echo "deb $site $also main" >> "$dir/etc/apt/sources.list"
      # nothing but this PostgreSQL comes from there
      printf 'Package: src:postgresql-%s\nPin: release a=%s\nPin-Priority: 990\n' "$major" "$also" > "$dir/etc/apt/preferences.d/pg_baton"
    fi
    touch "$dir/etc/pg_baton_chroot"
  fi
  copy_sources "$dir/src"
  inside "$dir" tests/support/setup.sh server
  pgtap_of_another_major
  rm -rf "$dir"/var/cache/apt/archives/*.deb
  if [ $((SECONDS - from)) -gt 20 ]; then say "chroot.sh: set up in $((SECONDS - from)) s"; fi
}

command=${1:-}
major=${2:-}
case $command in
  run | setup)
    [ "$(id -u)" = 0 ] || die "only root can set up and enter another system"
    release_of "$major" >/dev/null
    shift 2
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    dir=$folder/$major
    exec 9> "$dir.lock"
    flock --nonblock 9 || { say "chroot.sh: waiting for another run in $dir"; flock 9; }
    setup 9>&-
    if [ "$command" = run ]; then
      status=0
      inside "$dir" "$@" 9>&- || status=$?
      if [ "$status" != 0 ]; then say "chroot.sh: logs of failed suites are in $dir/src/.run"; fi
      exit "$status"
    fi ;;
  remove)
    case $major in --all) pattern='[0-9][0-9]' ;; [0-9][0-9]) pattern=$major ;; *) die "remove what? MAJOR or --all" ;; esac
    for dir in "$folder"/$pattern; do
      [ -d "$dir" ] || continue
      exec 9> "$dir.lock"
      flock --nonblock 9 || die "somebody works in $dir"
      rm -rf --one-file-system "$dir" "$dir.lock" "$dir.log"
    done ;;
  *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
