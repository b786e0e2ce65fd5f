//! The messages of OTLP that are sent and received, with their field numbers: opentelemetry-proto 1.x, the packages
//! `collector.trace.v1`, `trace.v1`, `resource.v1` and `common.v1`. What is never set here is left out.
//!
//! Not the usual crate: it would bring the whole SDK, tonic and a second generation of random numbers along for these
//! twelve types.

/// What is posted to `/v1/traces`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceRequest {
    /// One for each program that tells of itself.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The spans of one program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceSpans {
    /// The program.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<OtlpResource>,
    /// Its spans, by what made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpResource {
    /// `service.name` and the like.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The spans of one part of a program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeSpans {
    /// The part.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Its spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<OtlpSpan>,
}

/// What made spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpSpan {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// 8 bytes; empty for the first span of a trace.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What it is.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Whose work it is.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// When it began, in nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// When it was over.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is known of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// How it ended; none if nothing went wrong.
    #[prost(message, optional, tag = "15")]
    pub status: Option<OtlpStatus>,
    /// The flags of `traceparent`, and whether the parent is in another program.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Whose work a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Not said.
    Unspecified = 0,
    /// A part of another span's.
    Internal = 1,
    /// An answer to a request.
    Server = 2,
}

/// How a span ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpStatus {
    /// In words.
    #[prost(string, tag = "2")]
    pub message: String,
    /// In short.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// How a span ended, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Not said.
    Unset = 0,
    /// Well.
    Ok = 1,
    /// Not well.
    Error = 2,
}

/// One thing that is known.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What it is.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value of one of several types.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    /// The value.
    #[prost(oneof = "Value", tags = "1, 3")]
    pub value: Option<Value>,
}

/// The types that are used.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A whole number.
    #[prost(int64, tag = "3")]
    Int(i64),
}

/// What a collector answers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceResponse {
    /// What it did not take.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a collector did not take.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartialSuccess {
    /// So many spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}
