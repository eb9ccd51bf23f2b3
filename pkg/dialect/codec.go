package dialect

import (
	"errors"
	"fmt"
	"io"
	"iter"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Codec is the wire format of one vendor's API, in both directions.
//
// A client of the vendor (a provider of modelgw) encodes requests and decodes what comes back. Each answer is one of
// three: a body, a stream of events, or an error, which may also come in place of a body or within a stream:
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
// Between the two, ScanUsage reads what accounts need of an answer that is passed on as it came.
//
// # Purity
//
// A codec does no I/O, reads no clock but for ids that it makes, and keeps no state: the zero value of an
// implementation is ready, and its methods are safe for concurrent use. The readers and writers of streams that it
// makes belong to one answer and are not safe for concurrent use.
//
// Methods retain neither the bytes nor the messages that they are given, but for what they return: an output may share
// memory with the body that it was decoded from only where its comment says so; none does today. They do not change
// messages that they are given.
//
// # Bytes of others
//
// JSON that belongs to somebody else (schemas of tools, arguments of calls, seals of reasoning) passes through byte for
// byte. Members that a format does not know are ignored when read, in requests and answers alike: vendors add some at
// any time. What a request asks for and the canonical form cannot express is not ignored but refused, since the answer
// would be another than was asked for.
//
// No input makes a method panic, and none makes it allocate more than a multiple of the input's length: positions that
// a vendor sends (indices of choices, blocks and calls) are bounded.
//
// # Errors
//
//   - [*UnsupportedError] from AppendRequest: the format cannot express the request.
//   - [*Error] from DecodeResponse and StreamReader.Add: the vendor says an error in place of the answer, or of its rest.
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
	// Format returns what the format is called and what it calls things. It is the same each time.
	Format() Format

	// AppendRequest appends the body of a request to dst. Options of the configuration that the format does not have
	// are left out; which those are, a provider states in its capabilities. Equal requests give equal bytes, and a
	// conversation that goes on begins with the bytes of the shorter one, as the caches of vendors need it; marks for
	// such a cache may stand in the last turn.
	//
	// A provider with quirks fills the dialect's own Request in place of this, whose Append does the same.
	AppendRequest(dst []byte, r *Request) ([]byte, error)
	// DecodeResponse decodes the body of an answer.
	DecodeResponse(body []byte) (Response, error)
	// ReadEvents cuts a stream into events: [Events] for the formats that use server-sent events. It yields the error
	// of a stream that fails, and then ends.
	ReadEvents(stream io.Reader) iter.Seq2[Event, error]
	// NewStreamReader returns a reader of an answer that comes as events.
	NewStreamReader() StreamReader
	// DecodeError decodes the body of an answer that is an error. It never fails: of a body in no known form all of it
	// is the message, without the blanks around it.
	DecodeError(body []byte) *Error
	// Stopped returns the output that an error stands for: vendors report a full context and filtered content as
	// errors, though the model, or what stands before it, has decided. status is the HTTP status of the answer. ok is
	// false where it is an error and nothing else; output is then nil.
	Stopped(status int, said *Error, model string) (output *modelv1.ModelOutput, ok bool)

	// ParseRequest decodes the body of a client's request. Members of the result that the format has in the address
	// rather than in the body are left empty for the caller to fill. Config is never nil.
	ParseRequest(body []byte) (*Request, error)
	// AppendResponse appends an output to dst, as the answer to a request. A format that knows one choice takes the
	// first.
	AppendResponse(dst []byte, output *modelv1.ModelOutput, meta ResponseMeta) ([]byte, error)
	// NewStreamWriter returns a writer of an answer as events. Nothing is written before its first method is called.
	NewStreamWriter(w io.Writer, meta ResponseMeta) StreamWriter
	// AppendError appends the body of an error to dst.
	AppendError(dst []byte, f Failure) []byte
	// TooLong returns the failure of a conversation that the model has no room for, in the words by which clients of
	// this vendor recognise it. said is what the model's own vendor said of it.
	TooLong(said string) Failure

	// ScanUsage adds to facts what an answer says of itself: doc is a whole body, or the data of one event of a stream.
	// It reads as little as it can, whatever the length of the answer, and leaves out what it cannot read.
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

// Format is what a format is called and what it calls things.
type Format struct {
	// Name is the format's name, such as `openai-chat`. Providers state theirs by it.
	Name string
	// IDPrefix begins the ids of answers.
	IDPrefix string
	// OutputBounds are the members of a request that bound output tokens, the one that counts first.
	OutputBounds []string
	// Options are the members of a request that options of a configuration have, where the names differ.
	Options map[string]string
}

// Request is a request in the canonical form. What a vendor's servers differ in is in the Request of its dialect, which
// embeds this one.
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
	// Stream asks for the answer in pieces.
	Stream bool
	// IncludeUsage says that a client asked for usage at the end of a stream, in formats that leave it out otherwise.
	// Requests that are encoded always ask for it.
	IncludeUsage bool
	// Members are further members of the request. They replace those of the same name.
	Members []Member
}

// Member is a member of a JSON object.
type Member struct {
	Name string
	// JSON is its value.
	JSON string
}

// ResponseMeta is what an answer says beside the output.
type ResponseMeta struct {
	// ID is the id of the answer. Empty takes the output's own, or makes one; a stream, whose id comes first, makes
	// one.
	ID string
	// Model is named as the one that answered. Empty takes the one that the output names.
	Model string
	// Created is when, in seconds since 1970, in formats that say it.
	Created int64
	// IncludeUsage adds the usage to a stream, in formats that leave it out otherwise.
	IncludeUsage bool
}

// Response is an answer that was decoded: from a body, or from a stream as far as it came. What a provider needs of it
// beyond the output it finds in the type of the dialect, such as [*anthropic.Message].
//
// [*anthropic.Message]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect/anthropic#Message
type Response interface {
	// Output returns the answer in the canonical form. tools are those that were on offer. Its messages have new ids.
	// What a stream that was cut off lacks is missing here too: a choice without a reason to stop has
	// STOP_REASON_UNKNOWN.
	Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error)
}

// StreamReader decodes an answer that comes as events: Add for each event until Done, then Response.
//
// Three states of an answer matter to its caller. One that has not Started may be asked for again as if nothing had
// happened. One that is Complete has all of the answer. Anything between was cut off; what came of it is in Response.
type StreamReader interface {
	// Add takes the next event, whose data it does not retain, and returns the pieces of the answer that are in it, in
	// order, which the caller owns. Events of unknown types have none. After an error the reader is of no further use,
	// but for Started, Usage and Response.
	Add(event Event) ([]*modelv1.GenerateDelta, error)
	// Started reports whether anything of the answer has come.
	Started() bool
	// Done reports whether the last event has come: there is nothing more to read.
	Done() bool
	// Complete reports whether the answer is complete. Some servers leave out the last event and only say why the
	// choices ended, so that an answer may be complete before it is done.
	Complete() bool
	// Usage returns what the server has said so far of what the answer takes; nil where that is nothing.
	Usage() *modelv1.ModelUsage
	// Response returns what came of the answer. It is called once, after the last Add.
	Response() Response
}

// StreamWriter encodes an answer for a client as it comes: Write for each piece, then Close or Fail. Each call is at
// most a few writes to the writer below it, of whole events, so that whoever flushes after each call sends whole
// events. Once the writer below has failed, all methods fail with the same error.
type StreamWriter interface {
	// Write writes a piece. Pieces that the format has no place for are left out; Close makes up for it where it can.
	Write(delta *modelv1.GenerateDelta) error
	// Close writes what of the output was not written piece by piece (all of it where there were no pieces), and the
	// end. Of a text the rest is written; a call of which a piece was written is taken to have been written whole.
	Close(output *modelv1.ModelOutput) error
	// Ping writes what says nothing but that the answer still comes.
	Ping() error
	// Fail ends the answer with an error.
	Fail(f Failure) error
}

// UnsupportedError says that a format cannot express something.
type UnsupportedError struct {
	// API is what the format is called in prose.
	API string
	// What cannot be expressed.
	What string
}

// Error implements error.
func (e *UnsupportedError) Error() string { return e.API + " cannot take " + e.What }

// MalformedError says that bytes are no answer in a format.
type MalformedError struct {
	// Answer is what an answer is called in the format, such as `chat completion`.
	Answer string
	// Cause says what is wrong; nil: it lacks what makes an answer.
	Cause error
}

// Error implements error.
func (e *MalformedError) Error() string {
	if e.Cause == nil {
		return "the answer is no " + e.Answer
	}
	return fmt.Sprintf("the answer is no %s: %v", e.Answer, e.Cause)
}

// Unwrap returns the cause.
func (e *MalformedError) Unwrap() error { return e.Cause }

// ErrNoChoices says that an output holds no answer.
var ErrNoChoices = errors.New("the model gave no answer")

// Error is what a vendor says when it fails. What the words mean is for [Codec.Stopped] and the provider.
type Error struct {
	// Message is for people.
	Message string
	// Type and Code are the vendor's words, such as `overloaded_error`; either may be empty.
	Type, Code string
	// Status is the HTTP status that the words stand for, for errors that come without one of their own: in a body with
	// status 200, or within a stream. It is 0 where the words stand for none.
	Status int
	// Transient says that by the words the same request may succeed later, whatever the status of the answer.
	Transient bool
}

// Error implements error.
func (e *Error) Error() string { return e.Message }
