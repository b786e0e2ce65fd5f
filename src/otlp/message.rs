//! The OTLP messages that are sent and received: opentelemetry-proto 1.x, the packages `collector.trace.v1`,
//! `trace.v1`, `resource.v1` and `common.v1`. Fields that are never set here are left out.
//!
//! The usual crate is not used: for these twelve types it would add the whole SDK, tonic and a second generation
//! of random numbers.

/// The body of a POST to `/v1/traces`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceRequest {
    /// Spans grouped by program.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The spans of one program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceSpans {
    /// The program.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<OtlpResource>,
    /// Spans grouped by instrumentation scope.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A program that emits spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpResource {
    /// `service.name` and others.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The spans of one instrumentation scope.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<OtlpSpan>,
}

/// The library that created spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InstrumentationScope {
    /// The name of the library.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version of the library.
    #[prost(string, tag = "2")]
    pub version: String,
}

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
    /// The operation.
    #[prost(string, tag = "5")]
    pub name: String,
    /// The role of the span in its trace.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// The start, in nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// The end, in nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// The result; `None` if the request succeeded.
    #[prost(message, optional, tag = "15")]
    pub status: Option<OtlpStatus>,
    /// The flags of `traceparent`, and whether the parent is in another program.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// The role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Not specified.
    Unspecified = 0,
    /// An internal operation.
    Internal = 1,
    /// The handling of a request.
    Server = 2,
}

/// The result of a span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtlpStatus {
    /// A description.
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// The code of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Not specified.
    Unset = 0,
    /// Success.
    Ok = 1,
    Error = 2,
}

/// An attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value of one of several types.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    /// The value itself.
    #[prost(oneof = "Value", tags = "1, 3")]
    pub value: Option<Value>,
}

/// The types of values that are used.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// A string.
    #[prost(string, tag = "1")]
    Text(String),
    /// An integer.
    #[prost(int64, tag = "3")]
    Int(i64),
}

/// The body of a collector's response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceResponse {
    /// The spans that were rejected.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PartialSuccess {
    /// The number of rejected spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// The reason.
    #[prost(string, tag = "2")]
    pub error_message: String,
}
