//! Partitions: the published vector, spellings of a host, and even shares.

use std::collections::BTreeMap;

use crawlgate_fleet::node::NodeName;
use crawlgate_fleet::partition::{FleetKey, PARTITIONS, Partition, Partitioner};

fn partitioner() -> Partitioner {
    Partitioner::new(FleetKey::new(std::array::from_fn(|i| i as u8)), PARTITIONS)
}

/// SipHash-2-4 of the empty text with the key 00 … 0f is 0x726fdb47dd0e0e31 (the vectors of its authors).
#[test]
fn the_hash_is_siphash_2_4() {
    let expected = 0x726f_db47_dd0e_0e31_u64 % 1_024;
    assert_eq!(partitioner().partition(""), Partition(expected as u16));
}

#[test]
fn spellings_of_a_host_have_one_partition() {
    let partitioner = partitioner();
    for (host, same) in [
        ("example.com", "EXAMPLE.com"),
        ("example.com", "example.com."),
        ("::1", "[::1]"),
    ] {
        assert_eq!(partitioner.partition(host), partitioner.partition(same));
    }
    let other = Partitioner::new(FleetKey::new([7; 16]), PARTITIONS);
    assert_ne!(
        partitioner.partition("example.com"),
        other.partition("example.com")
    );
}

#[test]
fn nodes_get_even_shares_and_a_new_node_takes_only_its_own() {
    let partitioner = partitioner();
    let names: Vec<NodeName> = (0..8)
        .map(|i| NodeName::new(&format!("node-{i}")).unwrap())
        .collect();
    let share = |names: &[NodeName]| -> BTreeMap<Partition, NodeName> {
        partitioner
            .all()
            .map(|p| (p, partitioner.preferred(p, names).unwrap().clone()))
            .collect()
    };
    let before = share(&names[..7]);
    let after = share(&names);
    for (partition, node) in &after {
        assert!(*node == before[partition] || *node == names[7]);
    }
    for name in &names {
        let count = after.values().filter(|node| *node == name).count();
        assert!((80..180).contains(&count), "{name}: {count}");
    }
}

#[test]
fn node_names_are_labels() {
    for (text, allowed) in [
        ("a", true),
        ("node-1.rack_2", true),
        ("", false),
        ("-a", false),
        ("a b", false),
        ("ä", false),
        (&"a".repeat(63), true),
        (&"a".repeat(64), false),
    ] {
        assert_eq!(NodeName::new(text).is_ok(), allowed, "{text}");
    }
}
