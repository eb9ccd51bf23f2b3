package dialect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Codec is the wire format of one vendor's API, in both directions.
//
// A client of the vendor (a provider of modelgw) encodes requests and decodes answers. An answer is one of three: a
// body, a stream of events, or an error, which may also come in place of a body or within a stream:
//
//	AppendRequest ── HTTP ──┬─ 200, JSON ──── DecodeResponse ────────────────── Response.Output
//	                        ├─ 200, events ── ReadEvents, StreamReader.Add ──── Response.Output
//	                        └─ any other ──── DecodeError ───────────────────── Stopped
//
// A server in the vendor's format (an endpoint of modelgw) decodes requests and encodes answers:
//
//	ParseRequest ── model ──┬─ AppendResponse
//	                        ├─ NewStreamWriter, Write for each piece, then Close or Fail
//	                        └─ AppendError
//
// ScanUsage extracts what accounts need of an answer that is relayed unchanged.
//
// # Purity
//
// A codec does no I/O, reads the clock only for ids that it makes, and keeps no state: the zero value of an
// implementation is ready, and its methods are safe for concurrent use. Its stream readers and writers belong to one
// answer and are not safe for concurrent use.
//
// Methods do not retain the bytes and messages that they are given, except in their results: an output may share memory
// with the body that it was decoded from only where its comment says so; none does today. They do not modify messages
// that they are given.
//
// # Bytes of others
//
// Foreign JSON (schemas of tools, arguments of calls, seals of reasoning) passes through byte for byte. Unknown members
// are ignored when read, in requests and answers alike: vendors may add members at any time. A request for what the
// canonical form cannot express is refused rather than ignored, since the answer would be another one than requested.
//
// No input makes a method panic or allocate more than a multiple of the input's length: positions that a vendor sends
// (indices of choices, blocks and calls) are bounded.
//
// # Errors
//
//   - [*UnsupportedError] from AppendRequest: the format cannot express the request.
//   - [*Error] from DecodeResponse and StreamReader.Add: the vendor sent an error in place of the answer, or of its rest.
//   - [*MalformedError] from the same two and from Response.Output: the bytes are no answer in this format.
//   - [*RequestError] from ParseRequest: the client's request is at fault. It names the member.
//   - [ErrNoChoices] from AppendResponse, and from StreamWriter.Close where a format cannot end an empty answer: the
//     output holds no answer.
//   - StreamWriter's methods fail with the error of the writer below them.
//
// # Adding a format
//
// CONTRIBUTING.md has the checklist. An implementation passes the suite in [pkg/dialect/dialecttest].
//
// [pkg/dialect/dialecttest]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect/dialecttest
type Codec interface {
	// Format returns the name of the format and its terms. The result is constant.
	Format() Format

	// AppendRequest appends the body of a request to dst. It omits configuration options that the format does not have;
	// a provider declares those in its capabilities. Equal requests give equal bytes, and a longer conversation begins
	// with the bytes of its shorter prefix, as vendors' caches require; marks for such a cache may be in the last turn.
	//
	// A provider with quirks fills the dialect's own Request in place of this, whose Append does the same.
	AppendRequest(dst []byte, r *Request) ([]byte, error)
	// DecodeResponse decodes the body of an answer.
	DecodeResponse(body []byte) (Response, error)
	// ReadEvents splits a stream into events: [Events] for the formats that use server-sent events. Of a format with
	// frames of its own, each becomes an event whose data is JSON that says all that the frame says, so that records
	// and ScanUsage need the data alone. It yields the error of a failed stream, or a *MalformedError for bytes that
	// are no event, and then ends.
	ReadEvents(stream io.Reader) iter.Seq2[Event, error]
	// NewStreamReader returns a reader of an answer that arrives as events.
	NewStreamReader() StreamReader
	// DecodeError decodes the body of an error answer. It never fails: if a body has no known form, all of it is the
	// message, without the blanks around it.
	DecodeError(body []byte) *Error
	// Stopped returns the output that an error represents: vendors report a full context and filtered content as
	// errors, although the model, or a filter before it, has decided. status is the HTTP status of the answer. ok is
	// false for a genuine error; output is then nil.
	Stopped(status int, said *Error, model string) (output *modelv1.ModelOutput, ok bool)

	// ParseRequest decodes the body of a client's request, which is UTF-8: parts of it are kept as they are. Members
	// that the format has in the address rather than in the body are left empty for the caller to fill. Config is never
	// nil.
	ParseRequest(body []byte) (*Request, error)
	// AppendResponse appends an output to dst, as the answer to a request. A format with one choice takes the first.
	AppendResponse(dst []byte, output *modelv1.ModelOutput, meta ResponseMeta) ([]byte, error)
	// NewStreamWriter returns a writer of an answer as events. Nothing is written before its first method is called.
	NewStreamWriter(w io.Writer, meta ResponseMeta) StreamWriter
	// AppendError appends the body of an error to dst.
	AppendError(dst []byte, f Failure) []byte
	// TooLong returns the failure of a conversation that the model has no room for, in the words by which clients of
	// this vendor recognise it. said is the message of the model's own vendor.
	TooLong(said string) Failure

	// ScanUsage adds the facts of an answer to facts: doc is a whole body, or the data of one event of a stream. It
	// reads as little as possible, whatever the length of the answer, and skips what it cannot read.
	ScanUsage(doc []byte, facts *Facts)
}

// TokenCounter is implemented by codecs of vendors that count the tokens of a request on demand. Its errors are those
// of Codec.
type TokenCounter interface {
	// AppendCountRequest appends the body of the question for a request's input tokens to dst.
	AppendCountRequest(dst []byte, r *Request) ([]byte, error)
	// DecodeCountResponse decodes the answer to it.
	DecodeCountResponse(body []byte) (tokens int64, err error)
	// ParseCountRequest decodes the body of a client's question.
	ParseCountRequest(body []byte) (*Request, error)
	// AppendCountResponse appends the answer to it to dst.
	AppendCountResponse(dst []byte, tokens int64) []byte
}

// Reopener is implemented by codecs of formats whose clients may hold envelopes ([Seal]).
type Reopener interface {
	// Reopen returns a client's request in which the server gets, in place of each envelope, what take makes of the
	// reasoning within: sealed reasoning as the server sealed it, open reasoning as the format has that of others, or
	// nothing for nil. All other bytes stay; a request without envelopes is returned itself. Equal requests give equal
	// bytes. SignCalls means that the server demands a seal of each call.
	Reopen(request []byte, take func(*contentv1.Content) *contentv1.Content, signCalls bool) []byte
}

// Compactor is implemented by codecs of vendors whose clients ask for a conversation to be compacted, and send back
// what they got in its place.
type Compactor interface {
	// Compacted returns the part of an answer that replaces the conversation: a summary of it, in an envelope. A later
	// request with it has the summary as a message ([UnsealSummary]).
	Compacted(summary string) *contentv1.Content
	// AppendCompactResponse appends the answer to a request that asks for nothing but a compaction: what the user said
	// in the conversation, and the part, which the output has. Its error is that of AppendRequest.
	AppendCompactResponse(dst []byte, said []*modelv1.ChatMessage, output *modelv1.ModelOutput, meta ResponseMeta) ([]byte, error)
}

// Format is the name of a format and its terms.
type Format struct {
	// Name is the format's name, such as `openai-chat`. Providers state theirs by it.
	Name string
	// IDPrefix is the prefix of the ids of answers.
	IDPrefix string
	// Messages is the member of a request that holds the conversation.
	Messages string
	// OutputBounds are the members of a request that bound output tokens, the effective one first. A dot is before the
	// name of a member within a member.
	OutputBounds []string
	// Options are the members of a request that options of a configuration have, where the names differ.
	Options map[string]string
}

// Request is a request in the canonical form. The differences between a vendor's servers are in the Request of its
// dialect, which embeds this one.
type Request struct {
	// Model is the name that the server knows.
	Model string
	// Messages are the conversation.
	Messages []*modelv1.ChatMessage
	// Tools are on offer.
	Tools []*toolv1.ToolInfo
	// Choice is the choice among the tools; nil leaves it to the server.
	Choice *toolv1.ToolChoice
	// Config holds the options; nil is none.
	Config *modelv1.GenerateConfig
	// Stream requests the answer in pieces.
	Stream bool
	// OneCall means that the client takes one call in an answer, in the older of two forms that its format has for
	// calls: of more, it gets the first.
	OneCall bool
	// IncludeUsage means that a client asked for usage at the end of a stream, in formats that omit it otherwise.
	// Encoded requests always ask for it.
	IncludeUsage bool
	// Compact means that a client asks for its conversation to be compacted, in place of an answer ([Compactor]).
	// Encoded requests do not say it.
	Compact bool
	// Members are further members of the request. They replace members of the same name.
	Members []Member
}

// Member is a member of a JSON object.
type Member struct {
	Name string
	// JSON is its value.
	JSON string
}

// TextMember is a member whose value is a text.
func TextMember(name, text string) Member {
	return Member{Name: name, JSON: string(jsonwrite.AppendText(nil, text))}
}

// ResponseMeta is the part of an answer beside the output.
type ResponseMeta struct {
	// ID is the id of the answer. If it is empty, the output's own id is used, or a new one; a stream, whose id comes
	// first, uses a new one.
	ID string
	// Model is the name of the model that answered. If it is empty, the output's name is used.
	Model string
	// Created is the time in seconds since 1970, in formats that have it.
	Created int64
	// IncludeUsage adds the usage to a stream, in formats that leave it out otherwise.
	IncludeUsage bool
	// Request is the request that is answered, as ParseRequest returned it: some formats repeat parts of it, and name
	// its tools as it did. Nil repeats nothing.
	Request *Request
}

// Response is a decoded answer: from a body, or from a stream as far as it was received. A provider finds data beyond
// the output in the type of the dialect, such as [*anthropic.Message].
//
// [*anthropic.Message]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect/anthropic#Message
type Response interface {
	// Output returns the answer in the canonical form. tools are the offered tools. Its messages have new ids. Parts
	// that a stream did not deliver before it was cut off are missing here too: a choice without a reason to stop has
	// STOP_REASON_UNKNOWN.
	Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error)
}

// StreamReader decodes an answer that arrives as events: Add for each event until Done or the end of the stream, then
// Response.
//
// An answer has three states that matter to its caller. If it has not Started, the request may be repeated as if
// nothing had happened. If it is Complete, nothing is missing. Otherwise it was cut off; Response returns the received
// part.
type StreamReader interface {
	// Add decodes the next event, whose data it does not retain, and returns the pieces of the answer in it, in order,
	// which the caller owns. Events of unknown types have none. After an error only Started, Usage and Response may be
	// called.
	Add(event Event) ([]*modelv1.GenerateDelta, error)
	// Started reports whether any part of the answer has been received.
	Started() bool
	// Done reports whether the last event has been received: there is nothing more to read. In a format without a last
	// event it stays false.
	Done() bool
	// Complete reports whether the answer is complete. Some servers omit the last event and only send the reasons why
	// the choices ended, so that an answer may be complete before it is done.
	Complete() bool
	// Usage returns the usage that the server has reported so far; nil if none.
	Usage() *modelv1.ModelUsage
	// Response returns the received answer. It is called once, after the last Add.
	Response() Response
}

// StreamWriter encodes an answer for a client as it arrives: Write for each piece, then Close or Fail. Each call makes
// at most a few writes of whole events to the underlying writer, so that a caller which flushes after each call sends
// whole events. Once the underlying writer has failed, all methods fail with the same error.
type StreamWriter interface {
	// Write writes a piece. Pieces without a place in the format are omitted; Close writes their content if possible.
	Write(delta *modelv1.GenerateDelta) error
	// Close writes the parts of the output that were not written as pieces (all of it if there were no pieces), and the
	// end. It completes a text; a call with at least one written piece counts as written whole.
	Close(output *modelv1.ModelOutput) error
	// Ping writes a keep-alive event without content.
	Ping() error
	// Fail ends the answer with an error.
	Fail(f Failure) error
}

// UnsupportedError is the error for content that a format cannot express.
type UnsupportedError struct {
	// API is the name of the format in prose.
	API string
	// What is the inexpressible content.
	What string
	// Field is the field of a GenerateRequest that has it.
	Field string
}

// Error implements error.
func (e *UnsupportedError) Error() string { return e.API + " cannot take " + e.What }

// MalformedError is the error for bytes that are not an answer in a format.
type MalformedError struct {
	// Answer is the format's term for an answer, such as `chat completion`.
	Answer string
	// Cause is the fault; nil means that a required part of an answer is missing.
	Cause error
}

// Error implements error.
func (e *MalformedError) Error() string {
	why := ""
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](e.Cause); ok {
		why = fmt.Sprintf(": %s must not be %s", cmp.Or(mismatch.Field, "it"), aKind(mismatch.Value))
	} else if e.Cause != nil {
		why = ": " + e.Cause.Error()
	}
	return "the answer is no " + e.Answer + why
}

// Unwrap returns the cause.
func (e *MalformedError) Unwrap() error { return e.Cause }

// ErrNoChoices is the error for an output without an answer.
var ErrNoChoices = errors.New("the model gave no answer")

// Error is a vendor's error message. [Codec.Stopped] and the provider interpret it.
type Error struct {
	// Message is for people.
	Message string
	// Type and Code are the vendor's words, such as `overloaded_error`; either may be empty.
	Type, Code string
	// Param is the member of the request at fault, as the vendor names it; it may be empty.
	Param string
	// ResponseID is the vendor's id of the answer that failed; empty for a refusal, which has none.
	ResponseID string
	// Status is the HTTP status that corresponds to the message, for errors that come without one of their own: in a
	// body with status 200, or within a stream. It is 0 if the message corresponds to none.
	Status int
	// Transient means that according to the message the same request may succeed later, whatever the status of the
	// answer.
	Transient bool
	// RetryAfter is the delay that the message asks for, in formats that have it in the body; zero is unset.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Message }
