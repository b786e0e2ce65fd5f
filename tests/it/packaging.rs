//! Names in packages, the container and the chart, against the files, settings and defaults of this repository.
//!
//! `.ci/package` builds the packages and uses them in a clean system.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::command::crawlgate;
use crate::support::temp_dir::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text after `key` in each line that begins with it.
fn values(text: &str, key: &str) -> Vec<String> {
    let found: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(key))
        .map(|value| value.trim().to_owned())
        .collect();
    assert!(!found.is_empty(), "nothing begins with {key}");
    found
}

fn value(text: &str, key: &str) -> String {
    values(text, key).swap_remove(0)
}

/// `package.metadata` of Cargo.toml.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--no-deps"])
        .args(["--format-version", "1"])
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let root = packages
        .iter()
        .find(|package| package["name"] == "crawlgate");
    root.unwrap()["metadata"].clone()
}

/// The source and the destination of each entry in a package's list of files.
fn assets(list: &Value) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = list["assets"].as_array().unwrap();
    let pairs = entries.iter().map(|entry| match entry.as_array() {
        Some(fields) => (text(&fields[0]), format!("/{}", text(&fields[1]))),
        None => (text(&entry["source"]), text(&entry["dest"])),
    });
    pairs.collect()
}

/// Returns `true` if a file has this name, in which one `*` may be.
fn exists(source: &str) -> bool {
    let Some((before, after)) = source.split_once('*') else {
        return Path::new(source).is_file();
    };
    let (folder, start) = before.rsplit_once('/').unwrap_or((".", before));
    fs::read_dir(folder).unwrap().any(|entry| {
        let name = entry.unwrap().file_name();
        let name = name.to_str().unwrap();
        name.starts_with(start) && name.ends_with(after)
    })
}

#[test]
fn the_deb_and_the_rpm_have_the_same_files() {
    let metadata = metadata();
    let (deb, rpm) = (assets(&metadata["deb"]), assets(&metadata["generate-rpm"]));
    // cargo-deb adds these itself; the two systems keep the functions of zsh in different directories.
    let is_common = |(source, _): &&(String, String)| {
        !source.ends_with(".service")
            && !source.starts_with("LICENSE")
            && !source.ends_with("/_crawlgate")
    };
    let common = |files: &BTreeSet<(String, String)>| -> Vec<(String, String)> {
        files.iter().filter(is_common).cloned().collect()
    };
    assert_eq!(common(&deb), common(&rpm));
    for (source, _) in deb.iter().chain(&rpm) {
        // `.ci/package` makes these.
        assert!(source.starts_with("target/") || exists(source), "{source}");
    }
    for script in ["pre", "post"]
        .iter()
        .flat_map(|when| ["install", "uninstall"].map(|what| format!("{when}_{what}_script")))
    {
        let path = metadata["generate-rpm"][&script].as_str().unwrap();
        assert!(exists(path), "{script}: {path}");
    }
}

/// The unit may write into three directories only; the scripts create its user.
#[test]
fn the_installed_configuration_fits_the_unit() {
    let unit = read("docs/packaging/crawlgate.service");
    let config = read("docs/packaging/crawlgate.yaml");
    let installed = assets(&metadata()["deb"]);
    let granted = [
        format!("/etc/{}/", value(&unit, "ConfigurationDirectory=")),
        format!("/var/lib/{}", value(&unit, "StateDirectory=")),
        format!("/var/log/{}/", value(&unit, "LogsDirectory=")),
    ];
    let paths: Vec<&str> = config
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.split([' ', ',', '}']))
        .filter(|word| word.starts_with('/'))
        .collect();
    assert!(paths.len() >= 6, "{paths:?}");
    for path in paths {
        let known = granted.iter().any(|folder| path.starts_with(folder));
        assert!(known, "{path} is in none of {granted:?}");
    }
    assert_eq!(
        value(&unit, "ExecStart="),
        "/usr/bin/crawlgate run --config /etc/crawlgate/crawlgate.yaml"
    );
    for (source, folder) in [
        ("target/release/crawlgate", "/usr/bin/"),
        ("docs/packaging/crawlgate.yaml", "/etc/crawlgate/"),
        ("config/policy.yaml", "/etc/crawlgate/"),
    ] {
        assert!(
            installed.contains(&(source.to_owned(), folder.to_owned())),
            "{source}"
        );
    }
    let user = value(&unit, "User=");
    for script in ["docs/packaging/deb/postinst", "docs/packaging/rpm/pre.sh"] {
        let created = read(script);
        assert!(created.contains("useradd --system"), "{script}");
        assert!(created.contains(&format!("/nologin {user}")), "{script}");
    }
}

/// A directory as the installed service, the container or the chart sees `/etc/crawlgate`.
fn check(config: &str, policy: &str) {
    let folder = TempDir::new();
    let here = format!("{}/", folder.path().display());
    fs::create_dir(folder.path().join("lists")).unwrap();
    for list in fs::read_dir("config/lists").unwrap() {
        let list = list.unwrap();
        fs::copy(
            list.path(),
            folder.path().join("lists").join(list.file_name()),
        )
        .unwrap();
    }
    folder.write("policy.yaml", policy);
    let state = folder.path().join("state");
    for directory in ["", "fleet", "certs"] {
        fs::create_dir(state.join(directory)).unwrap();
    }
    folder.write("state/admin.token", "a-token-of-sixteen-characters\n");
    let config = config.replace(
        "/run/crawlgate/admin/token",
        "/var/lib/crawlgate/admin.token",
    );
    // The environment of a node of a fleet.
    let config = [
        ("${HOSTNAME}", "node"),
        ("${NODE}", "node"),
        ("${POD_IP}", "10.0.0.5"),
        ("${ADDRESS}", "10.0.0.5"),
        ("${PGPASSWORD}", "secret"),
        (
            "${DATABASE_URL}",
            "postgresql://crawlgate:secret@db.internal/crawlgate",
        ),
    ]
    .iter()
    .fold(config, |text, (variable, value)| {
        text.replace(variable, value)
    });
    let config = [
        "/var/lib/crawlgate",
        "/var/log/crawlgate",
        "/run/crawlgate",
        "/shared",
        "/token",
    ]
    .iter()
    .fold(config.replace("/etc/crawlgate/", &here), |text, path| {
        text.replace(path, &state.display().to_string())
    });
    folder.write("crawlgate.yaml", &config);
    // A secret of the cluster holds the authority that the chart uses.
    let created = crawlgate(folder.path(), "ca init --config crawlgate.yaml", "");
    assert_eq!(created.code, 0, "{created:?}");
    for directory in ["state/fleet", "state/certs"] {
        let issued = format!("fleet cert node --directory {directory}");
        let issued = crawlgate(folder.path(), issued.as_str(), "");
        assert_eq!(issued.code, 0, "{issued:?}");
    }
    let output = crawlgate(folder.path(), "check crawlgate.yaml", "");
    assert_eq!(output.code, 0, "{config}\n{output:?}");
    assert!(
        output.stdout.contains("\n0 errors, 0 warnings"),
        "{output:?}"
    );
}

#[test]
fn shipped_configurations_have_no_mistake() {
    let policy = read("config/policy.yaml");
    check(&read("docs/packaging/crawlgate.yaml"), &policy);
    let composed = read("dashboards/compose/crawlgate.yaml");
    assert!(
        composed.contains("path: ../config/policy.yaml"),
        "{composed}"
    );
    check(&composed.replace("../config/", ""), &policy);

    let fleet = read("docs/packaging/fleet/crawlgate.yaml");
    let path = "path: ../../../config/policy.yaml";
    assert!(fleet.contains(path), "{fleet}");
    check(&fleet.replace(path, "path: policy.yaml"), &policy);

    let helpers = read("docs/packaging/helm/templates/_helpers.tpl");
    let template = |name: &str| {
        let begin = format!("define \"crawlgate.{name}\" -}}}}\n");
        let (_, text) = helpers.split_once(&begin).unwrap();
        text.split_once("{{- end }}").unwrap().0
    };
    let chart = template("config")
        .replace("{{ include \"crawlgate.name\" . }}", "gate")
        .replace("{{ .Release.Namespace }}", "crawl")
        .replace("/etc/crawlgate/policy/", "/etc/crawlgate/");
    let values = read("docs/packaging/helm/values.yaml");
    let (_, policy) = values.split_once("\npolicy: |\n").unwrap();
    let policy: String = policy
        .lines()
        .map_while(|line| line.strip_prefix("  "))
        .flat_map(|line| [line, "\n"])
        .collect();
    check(&chart, &policy);
    let service = read("docs/packaging/helm/templates/service.yaml");
    assert!(service.contains("name: {{ include \"crawlgate.name\" . }}-replicas\n"));
    for domain in ["", ".crawl", ".crawl.svc", ".crawl.svc.cluster.local"] {
        let name = format!("\"${{HOSTNAME}}.gate-replicas{domain}\"");
        assert!(chart.contains(&name), "{name}:\n{chart}");
    }
    let store = "store: { path: /var/lib/crawlgate";
    let node = template("fleet").replace("store: {", &format!("{store},"));
    let node = node.replace("{{ .Values.fleet.lease }}", "15s");
    let of_fleet = chart.replace(&format!("{store} }}\n"), &node);
    assert!(of_fleet.contains("kind: postgres"), "{of_fleet}");
    check(&of_fleet, &policy);
}

#[test]
fn the_nodes_of_the_fleet_to_try_agree() {
    let compose = read("docs/packaging/fleet/compose.yaml");
    let settings = read("docs/packaging/fleet/crawlgate.yaml");
    let balancer = read("docs/packaging/fleet/haproxy/haproxy.cfg");
    for number in 1..=3 {
        let address = format!("172.31.32.1{number}");
        let node = format!("NODE: proxy-{number}, ADDRESS: {address} }}");
        assert!(compose.contains(&node), "{node}");
        let fixed = format!("ipv4_address: {address} }}");
        assert!(compose.contains(&fixed), "{fixed}");
        let server = format!("server proxy-{number} {address}:3128 check port 3129\n");
        assert!(balancer.contains(&server), "{server}");
        assert!(balancer.contains(&format!("server any-{number} {address}:3128 backup\n")));
        assert!(balancer.contains(&format!("http://{address}:3129")));
    }
    // HAProxy, which reports the addresses of clients, and the database.
    assert!(settings.contains("trusted: [172.31.32.10]"));
    assert!(compose.contains("ipv4_address: 172.31.32.10 }"));
    assert!(settings.contains("@172.31.32.2/"));
    assert!(compose.contains("ipv4_address: 172.31.32.2 }"));
}

#[test]
fn the_container_the_compose_file_and_the_chart_agree() {
    let image = read("dashboards/Dockerfile");
    let compose = read("dashboards/compose.yaml");
    let set = read("docs/packaging/helm/templates/statefulset.yaml");
    let chart = read("docs/packaging/helm/Chart.yaml");
    let cargo = read("Cargo.toml");

    let user = value(&image, "USER ");
    assert_eq!(user, format!("{0}:{0}", value(&set, "runAsUser: ")));
    assert!(image.contains(&format!("--uid {}", value(&set, "runAsUser: "))));
    assert_eq!(value(&set, "runAsGroup: "), value(&set, "fsGroup: "));
    // Alloy reads the decision log as the group that owns it.
    let group = user.split_once(':').unwrap().1;
    assert_eq!(value(&compose, "user: "), format!("\"0:{group}\""));

    let defaults = read("config/crawlgate.yaml");
    for (key, name) in [
        ("listen: 127.0.0.1:", "proxy"),
        ("  listen: 127.0.0.1:", "admin"),
    ] {
        let line = defaults.lines().find_map(|line| line.strip_prefix(key));
        let port = line.unwrap();
        assert!(
            value(&image, "EXPOSE ")
                .split(' ')
                .any(|exposed| exposed == port),
            "{port}"
        );
        assert!(
            compose.contains(&format!("\"127.0.0.1:{port}:{port}\"")),
            "{port}"
        );
        assert!(
            set.contains(&format!("name: {name}, containerPort: {port}")),
            "{port}"
        );
    }

    let rust = value(&cargo, "rust-version = ").replace('"', "");
    assert!(
        image.contains(&format!("FROM rust:{rust}-slim-bookworm")),
        "{rust}"
    );
    let workflow = read(".github/workflows/release.yml");
    assert!(
        workflow.contains(&format!("rust:{rust}-bookworm")),
        "{rust}"
    );
    assert_eq!(value(&workflow, "RUST_VERSION: "), format!("\"{rust}\""));
    assert_eq!(value(&chart, "appVersion: "), VERSION);
}

/// Labels of Loki come from fields of the decision log.
#[test]
fn fields_that_are_sent_to_loki_exist() {
    let fields = read("docs/decision-log.md");
    let names: BTreeSet<String> = read("dashboards/compose/decisions.alloy")
        .lines()
        .filter(|line| line.contains("expressions =") || line.contains("values ="))
        .flat_map(|line| {
            line.split('"')
                .skip(1)
                .step_by(4)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        assert!(fields.contains(&format!("\n| `{name}` |")), "{name}");
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let folder = TempDir::new();
    let output = crawlgate(folder.path(), "man .", "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let help = crawlgate(folder.path(), "--help", "").stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands
        .lines()
        .map_while(|line| line.strip_prefix("  "))
        .filter_map(|line| {
            line.split_whitespace()
                .next()
                .filter(|_| !line.starts_with(' '))
        })
        .filter(|name| *name != "help");
    let mut count = 0;
    for name in commands {
        let page = read(
            folder
                .path()
                .join(format!("crawlgate-{name}.1"))
                .to_str()
                .unwrap(),
        );
        assert!(page.contains("\n.SH NAME\n"), "{name}: {page}");
        count += 1;
    }
    assert!(count > 10, "{count}");
    assert!(
        read(folder.path().join("crawlgate.1").to_str().unwrap()).contains("crawlgate\\-run(1)")
    );
    assert_eq!(crawlgate(folder.path(), "man new/pages", "").code, 0);
    assert!(folder.path().join("new/pages/crawlgate.1").exists());
    folder.write("file", "in the way");
    assert_eq!(crawlgate(folder.path(), "man file/pages", "").code, 3);
}
