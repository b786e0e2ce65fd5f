//! The servers, clients and fixtures that the tests share.
//!
//! | item | purpose |
//! |---|---|
//! | [`proxy::TestProxy`] | the real binary with a configuration and a policy, its listeners, log and metrics |
//! | [`origin::ScriptedOrigin`] | an origin that a test scripts, in the clear or over TLS; records what it receives |
//! | [`http2_origin::Http2Origin`], [`http2_origin::FramePeer`] | origins that speak HTTP/2, by requests or frame by frame |
//! | [`parent::TestParent`] | a parent proxy: HTTP, HTTPS, SOCKS 5 |
//! | [`client::RawClient`], [`client::Response`] | a client that sends bytes and reads responses |
//! | [`dns::DnsServer`] | a DNS server with scripted answers |
//! | [`http2::Http2Client`], [`http2::RawHttp2`] | clients that speak HTTP/2: by a library, and frame by frame |
//! | [`admin::TestAdmin`] | an admin server in the test process, with the parts that the test chooses |
//! | [`pipeline::TestPipeline`] | the stages from request to permit, in the test process and without sockets |
//! | [`policy`] | compiled policies and texts of policies |
//! | [`ledger`] | observations for the ledger |
//! | [`recorder`] | a recorder whose lines are not written |
//! | [`command::crawlgate`] | a run of the binary to its end, and its output |
//! | [`temp_dir::TempDir`] | a directory that is removed at the end of the test |
//! | [`wait::wait_until`] | polling with a deadline |

pub(crate) mod admin;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod dns;
pub(crate) mod http2;
pub(crate) mod http2_origin;
pub(crate) mod ledger;
pub(crate) mod origin;
pub(crate) mod parent;
pub(crate) mod pipeline;
pub(crate) mod policy;
pub(crate) mod proxy;
pub(crate) mod recorder;
pub(crate) mod temp_dir;
pub(crate) mod wait;
