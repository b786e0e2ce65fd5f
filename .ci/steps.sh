# The checks that .ci/run, .ci/quick and .ci/full consist of. Sourced, from the repository's root.
#
# A step that fails does not hide those after it: its name is kept, and `summary` prints all of them.

export CI="${CI:-1}" CARGO_TERM_COLOR=never LC_ALL=C.UTF-8
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

test_command="cargo test --locked"
binary=target/release/crawlgate

# step NAME COMMAND...: runs a command, prints its output in one piece, and remembers its time and its failure.
step() {
  local name=$1 begin=$SECONDS code log
  shift
  log=$(mktemp "$scratch/step.XXXXXX")
  # Not as a condition: that would switch `set -e` off inside.
  set +e
  (set -e; trap - EXIT; "$@") >"$log" 2>&1
  code=$?
  set -e
  {
    flock 3
    printf '\n=== %s\n' "$name"
    cat "$log"
    printf '%5d s  %s\n' $((SECONDS - begin)) "$name" >>"$scratch/timings"
    if ((code != 0)); then
      printf '=== FAILED with exit code %d: %s\n' "$code" "$name"
      printf '%s\n' "$name" >>"$scratch/failed"
    fi
  } 3>>"$scratch/lock"
}

# --- what the other steps need

# `rust-version` is the promise to users; CI's own toolchain is at least that.
toolchain() {
  local needed have
  rustc --version
  cargo --version
  needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1)
  have=$(rustc --version | sed -E 's/^rustc ([0-9]+\.[0-9]+).*/\1/')
  [[ $(printf '%s\n%s\n' "$needed" "$have" | sort -V | head -1) == "$needed" ]] ||
    { printf 'rustc %s is older than rust-version %s of Cargo.toml\n' "$have" "$needed"; return 1; }
}

install() {
  local packages=()
  command -v curl >/dev/null || packages+=(curl)
  command -v wget >/dev/null || packages+=(wget)
  command -v aria2c >/dev/null || packages+=(aria2)
  command -v prometheus >/dev/null && command -v promtool >/dev/null || packages+=(prometheus)
  command -v node >/dev/null || packages+=(nodejs)
  command -v npm >/dev/null || packages+=(npm)
  command -v openssl >/dev/null || packages+=(openssl)
  command -v java >/dev/null && command -v keytool >/dev/null || packages+=(openjdk-17-jdk-headless)
  command -v chromium >/dev/null || packages+=(chromium)
  command -v certutil >/dev/null || packages+=(libnss3-tools)
  command -v go >/dev/null || packages+=(golang-go)
  command -v caddy >/dev/null || packages+=(caddy)
  command -v nghttpd >/dev/null || packages+=(nghttp2-server)
  command -v faketime >/dev/null || packages+=(faketime)
  command -v nginx >/dev/null || packages+=(nginx-light)
  command -v haproxy >/dev/null || packages+=(haproxy)
  command -v squid >/dev/null || packages+=(squid)
  command -v danted >/dev/null || packages+=(dante-server)
  command -v apache2 >/dev/null || packages+=(apache2-bin)
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql-15)
  [[ -x /usr/sbin/pgbouncer ]] || packages+=(pgbouncer)
  [[ -e /usr/share/jetty9/start.jar ]] || packages+=(jetty9)
  command -v python3 >/dev/null || packages+=(python3)
  python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
  install_packages "${packages[@]}"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
  python3 -m venv "$scratch/venv"
  retry "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check -r tests/acceptance/requirements.txt
  mkdir "$scratch/node"
  retry npm install --prefix "$scratch/node" --no-audit --no-fund --silent undici@7.30.2 \
    playwright-core@1.65.1 axe-core@4.14.1 @crawlee/cheerio@3.18.1 linkinator@7.6.1 \
    @grafana/lezer-logql@0.4.2 @lezer/lr@1.4.10
}

install_compiler() {
  command -v cc >/dev/null || install_packages gcc libc6-dev
}

# Debian starts the services of new packages, unless this file says no: squid would take the proxy's own port.
install_packages() {
  local policy=/usr/sbin/policy-rc.d code=0
  (($#)) || return 0
  retry as_root apt-get -o DPkg::Lock::Timeout=300 -q update
  [[ -e $policy ]] && policy= || { printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin "$policy"; }
  retry as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y \
    install --no-install-recommends "$@" || code=$?
  [[ -z $policy ]] || as_root rm -f "$policy"
  return "$code"
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

# Package servers and locks fail for moments.
retry() {
  local pause
  for pause in 5 15 45; do
    "$@" && return
    printf 'failed, again in %d s: %s\n' "$pause" "$*"
    sleep "$pause"
  done
  "$@"
}

# --- sources and documents

# The README tells a newcomer to type what this script runs.
readme_commands() {
  local command named
  for command in "cargo run --release -- run" "cargo run --release -- demo"; do
    grep -qF "$command" README.md || { printf 'README.md does not name: %s\n' "$command"; return 1; }
  done
  named=$(grep -oE 'cargo test[^#`]*' README.md | sed -E 's/[[:space:]]+$//' | head -1)
  [[ $named == "$test_command" ]] ||
    { printf 'the test command of README.md is %s, not %s\n' "$named" "$test_command"; return 1; }
}

clippy() {
  cargo clippy --workspace --all-targets --locked -- -D warnings
}

documentation() {
  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
}

# A page that the navigation lacks and a dead link fail. The built pages load nothing from other hosts.
site() {
  local found
  python3 -m venv "$scratch/site-venv"
  retry "$scratch/site-venv/bin/pip" install --quiet --disable-pip-version-check -r .ci/site/requirements.txt
  NO_MKDOCS_2_WARNING=1 "$scratch/site-venv/bin/mkdocs" build --strict -f .ci/site/mkdocs.yml -d "$scratch/site"
  found=$(grep -rnoE '<(script|link|img|iframe)[^>]* (src|href)="?https?:[^ >]*' "$scratch/site" --include='*.html' || true)
  [[ -z $found ]] || { printf 'loaded from other hosts:\n%s\n' "$found"; return 1; }
  [[ -s $scratch/site/search/search_index.json ]]
}

# The policy crate stays free of I/O libraries; its example embeds it in a crawler.
policy_crate() {
  local found
  found=$(cargo tree --locked -p crawlgate-policy -e normal --prefix none | grep -E '^(tokio|hyper|rustls|prometheus) ' || true)
  [[ -z $found ]] || { printf 'crates/policy depends on:\n%s\n' "$found"; return 1; }
  cargo run --locked --example embed
}

# --- tests

build_tests() {
  $test_command --no-run
}

# Each fuzz target gets 5 s of generated input, after its corpus, and each law of the policy language 2,000 random
# policies; in .ci/full ten minutes and 150,000.
tests() {
  # Most tests wait for sockets and processes for most of their time.
  RUST_TEST_THREADS=6 CRAWLGATE_FUZZ_SECONDS=5 CRAWLGATE_LAWS=1000 $test_command --no-fail-fast 2>&1 |
    tee "$scratch/tests.log" || repeat_failed_tests
}

# A machine that stands still for a second breaks tests of real sockets and clocks. What failed runs once more, one test
# at a time. A test that passes then does not fail the run, but the summary names it; more than three always fail it.
repeat_failed_tests() {
  local failed
  sed -nE '/^---- .* stdout ----$/,/^(failures:|---- .* stdout ----)$/p' "$scratch/tests.log" | tail -150 >"$scratch/panics"
  mapfile -t failed < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$scratch/tests.log")
  # None has failed if something was not compiled or a process was killed.
  ((${#failed[@]} > 0 && ${#failed[@]} <= 3)) || return 1
  (($(grep -cE '^ +(Running|Doc-tests) ' "$scratch/tests.log") == $(grep -c '^test result: ' "$scratch/tests.log"))) || return 1
  # What is generated from a seed fails again: nothing there depends on the machine.
  [[ " ${failed[*]}" != *" fuzz::"* && " ${failed[*]}" != *" laws::"* ]] || return 1
  RUST_TEST_THREADS=1 $test_command --tests -- --exact "${failed[@]}" 2>&1 | tee "$scratch/repeated" || return 1
  (($(grep -c '^test .* \.\.\. ok$' "$scratch/repeated") == ${#failed[@]})) || return 1
  printf '%s\n' "${failed[@]}" >"$scratch/flaky"
}

# --- the program

release_build() {
  cargo build --release --locked
}

demo() {
  timeout 10 cargo run --release --locked -- demo
}

# The defaults: proxy on 3128, admin on 3129, both on loopback. Asked for its own machine's address the proxy
# refuses, which needs no network.
run_without_arguments() {
  local answer server _
  cargo run --release --locked -- run 2>"$scratch/run.log" &
  server=$!
  # shellcheck disable=SC2064  # now, while the variable is in scope
  trap "kill $server 2>/dev/null || true" EXIT
  for _ in {1..100}; do
    kill -0 "$server" 2>/dev/null || break
    curl -q -sf --noproxy '*' -o "$scratch/ready" http://127.0.0.1:3129/readyz && break
    sleep 0.1
  done
  kill -0 "$server" 2>/dev/null || { cat "$scratch/run.log"; printf 'it did not start\n'; return 1; }
  answer=$(curl -q -sS --noproxy '' -x http://127.0.0.1:3128 -D - -o "$scratch/body" http://127.0.0.1/)
  printf '%s\n' "$answer"
  grep -qi '^Crawl-Reason: ' <<<"$answer" || { cat "$scratch/run.log"; printf 'no Crawl-Reason\n'; return 1; }
  kill -TERM "$server"
  wait "$server"
}

# The load of docs/speed.md for a moment, with the tests' build; its figures come from `cargo bench`, which builds the
# profile dist.
load() {
  cargo bench --profile dev --locked --bench request -- 0.6
}

acceptance() {
  python3 -B tests/acceptance/run.py --binary "$binary" --scrapy-python "$scratch/venv/bin/python" \
    --node-modules "$scratch/node" | tee "$scratch/acceptance-clients.log"
}

frames() {
  python3 -B tests/conformance/h2/run.py --binary "$binary" | tee "$scratch/acceptance-frames.log"
}

over_http2() {
  python3 -B tests/acceptance/over_http2.py --binary "$binary" --python "$scratch/venv/bin/python" \
    --node-modules "$scratch/node" | tee "$scratch/acceptance-http2.log"
}

signed() {
  python3 -B tests/acceptance/signed.py --binary "$binary" --python "$scratch/venv/bin/python" |
    tee "$scratch/acceptance-signed.log"
}

parents() {
  python3 -B tests/acceptance/parents.py --binary "$binary" --python "$scratch/venv/bin/python" |
    tee "$scratch/acceptance-parents.log"
}

# Sixty pages at one request per second, forty crawls side by side: it waits more than it works.
lost() {
  renice -n 15 -p "$BASHPID" >/dev/null || true
  python3 -B tests/acceptance/lost.py --binary "$binary" --python "$scratch/venv/bin/python" \
    --node-modules "$scratch/node" | tee "$scratch/acceptance-lost.log"
}

reloads() {
  python3 -B tests/acceptance/reloads.py --seconds "${1:-30}" --binary "$binary" | tee "$scratch/acceptance-reloads.log"
}

paces() {
  python3 -B tests/acceptance/paces.py --seconds "${1:-60}" --binary "$binary" | tee "$scratch/acceptance-paces.log"
}

fleet_haproxy() {
  python3 -B tests/acceptance/fleet_haproxy.py --binary "$binary" | tee "$scratch/acceptance-fleet-haproxy.log"
}

fleet_watched() {
  python3 -B tests/acceptance/fleet_watched.py --binary "$binary" --node-modules "$scratch/node" \
    --screenshots target/screenshots | tee "$scratch/acceptance-fleet-watched.log"
}

# Three processes and a PostgreSQL of the run's own.
fleet() {
  python3 -B tests/acceptance/fleet.py --seconds "${1:-30}" --binary "$binary" | tee "$scratch/acceptance-fleet.log"
}

# Each proxy of the acceptance run is one of three nodes.
acceptance_of_a_fleet() {
  python3 -B tests/acceptance/run.py --fleet --binary "$binary" --scrapy-python "$scratch/venv/bin/python" \
    --node-modules "$scratch/node" | tee "$scratch/acceptance-clients-fleet.log"
}

frames_through_a_fleet() {
  python3 -B tests/conformance/h2/run.py --fleet --binary "$binary" | tee "$scratch/acceptance-frames-fleet.log"
}

# fleet_failures [COUNT]: nodes and the database are killed, paused, frozen and cut off, and the database fails over, so many times.
# Four runs side by side, since each waits for most of the time.
fleet_failures() {
  local names lease run running=() failed=0
  # By leases of 15 s nobody notices that the database was away for some seconds.
  while read -r lease names; do
    # shellcheck disable=SC2086
    CRAWLGATE_FLEET_LEASE=$lease python3 -B tests/acceptance/fleet.py --failures "${1:-5}" --only $names --binary "$binary" \
      </dev/null >"$scratch/acceptance-fleet-${names%% *}.log" &
    running+=($!)
  done <<'END'
5 kill pause lose-60
15 lose-0.2 lose-3 freeze fail-over
5 cut-link cut-link-there cut-link-back
5 cut-database cut-database-there cut-database-back
END
  for run in "${running[@]}"; do
    wait "$run" || failed=1
  done
  cat "$scratch"/acceptance-fleet-{kill,lose-0.2,cut-link,cut-database}.log
  return "$failed"
}

fleet_cost() {
  python3 -B tests/acceptance/fleet.py --cost --binary "$binary" | tee "$scratch/acceptance-fleet-cost.log"
}

paces_over_http2() {
  python3 -B tests/acceptance/paces.py --http2 --seconds "${1:-20}" --binary "$binary" |
    tee "$scratch/acceptance-paces-http2.log"
}

memory() {
  python3 -B tests/acceptance/memory.py --binary "$binary" | tee "$scratch/acceptance-memory.log"
}

dashboards() {
  python3 -B tests/acceptance/dashboards.py --binary "$binary" --node-modules "$scratch/node" |
    tee "$scratch/acceptance-dashboards.log"
}

admin_api() {
  "$scratch/venv/bin/python" -B tests/acceptance/api.py --binary "$binary" | tee "$scratch/acceptance-api.log"
}

spellings() {
  python3 -B tests/hostile/spellings.py --binary "$binary" | tee "$scratch/acceptance-spellings.log"
}

attacks() {
  python3 -B tests/hostile/attacks.py --binary "$binary" | tee "$scratch/acceptance-attacks.log"
}

soak() {
  python3 -B tests/hostile/soak.py --seconds "${1:-120}" --binary "$binary" | tee "$scratch/acceptance-soak.log"
}

# Its screenshots stay under target/screenshots.
admin_page() {
  python3 -B tests/acceptance/page.py --binary "$binary" --node-modules "$scratch/node" \
    --screenshots target/screenshots | tee "$scratch/acceptance-page.log"
}

admin_page_size() {
  python3 -B tests/acceptance/page_size.py --binary "$binary" --node-modules "$scratch/node" |
    tee "$scratch/acceptance-page-size.log"
}

# --- the end

tree() {
  git status --porcelain 2>/dev/null || true
}

unchanged() {
  [[ $(tree) == "$1" ]] || { printf 'the run left something behind:\n'; tree; return 1; }
}

# summary tests [acceptance]: prints times and counts, and fails if a step failed or a kind of check did not run.
summary() {
  local passed=0 broken=0 ignored=0 checks=0 wrong=0 line
  while read -r line; do
    [[ $line =~ ^test\ result:.*\ ([0-9]+)\ passed\;\ ([0-9]+)\ failed\;\ ([0-9]+)\ ignored ]] || continue
    passed=$((passed + BASH_REMATCH[1])) broken=$((broken + BASH_REMATCH[2])) ignored=$((ignored + BASH_REMATCH[3]))
  done < <(cat "$scratch"/tests.log 2>/dev/null)
  while read -r line; do
    [[ $line =~ ^([0-9]+)\ checks,\ ([0-9]+)\ failed ]] || continue
    checks=$((checks + BASH_REMATCH[1])) wrong=$((wrong + BASH_REMATCH[2]))
  done < <(cat "$scratch"/acceptance-*.log 2>/dev/null)
  if [[ -s $scratch/flaky ]]; then
    line=$(wc -l <"$scratch/flaky")
    passed=$((passed + line)) broken=$((broken - line))
  fi
  printf '\n=== time of each step\n'
  cat "$scratch/timings"
  printf '%5d s  in all\n' "$SECONDS"
  printf '\ncargo test: %d passed, %d failed, %d ignored\n' "$passed" "$broken" "$ignored"
  printf 'acceptance: %d checks, %d failed\n' "$checks" "$wrong"
  [[ " $* " != *" tests "* ]] || ((passed > 0)) || echo "no test was run" >>"$scratch/failed"
  [[ " $* " != *" acceptance "* ]] || ((checks > 0)) || echo "no acceptance check was made" >>"$scratch/failed"
  [[ ! -s $scratch/panics ]] || cat "$scratch/panics"
  # The first problems of a check that failed follow its line, indented.
  awk '/^FAIL /, !/^(FAIL|  )/ { if (/^(FAIL|  )/) print }' < <(cat "$scratch"/acceptance-*.log 2>/dev/null)
  [[ ! -s $scratch/flaky ]] || sed 's/^/passed only when it was repeated: /' "$scratch/flaky"
  [[ ! -s $scratch/failed ]] || sed 's/^/FAILED: /' "$scratch/failed"
  printf '%d passed, %d failed\n' $((passed + checks - wrong)) $((broken + wrong))
  [[ ! -s $scratch/failed ]]
}
