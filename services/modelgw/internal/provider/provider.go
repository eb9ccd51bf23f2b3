// Package provider is the port to upstream model APIs: what the gateway asks of an API, which properties it must know
// beforehand, and how the API fails.
//
// A Kind is a provider that is registered under a name, such as `openai`. Opened for a model, an account and arguments
// it returns a Provider, which makes one attempt per call and nothing more: the gateway does retries, limits, caches
// and budgets. The registry keeps opened providers, so that equal references share one instance and its state.
package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Provider makes attempts on one model. Its methods are safe for concurrent use.
type Provider interface {
	// Capabilities returns what the gateway must know before it calls. The result is constant.
	Capabilities() Capabilities
	// Check fails where every call with this configuration would. It calls no one.
	Check(c *modelv1.GenerateConfig) error
	// Generate makes one attempt. Failures of the upstream API are *Error. A stop of the model that is not a failure (a
	// full context, a content filter) is a stop reason of an output.
	Generate(ctx context.Context, r *Request) (*Response, error)
	// Close releases the resources of the instance. Attempts in flight continue. It may be called more than once.
	Close() error
}

// ByConfig is a provider that speaks several APIs, of which the configuration of a call selects one. Its Capabilities
// are those of a call without options.
type ByConfig interface {
	// CapabilitiesOf returns the capabilities of calls with this configuration.
	CapabilitiesOf(c *modelv1.GenerateConfig) Capabilities
}

// CapabilitiesOf returns a provider's capabilities for a call with this configuration.
func CapabilitiesOf(p Provider, c *modelv1.GenerateConfig) Capabilities {
	if by, ok := p.(ByConfig); ok {
		return by.CapabilitiesOf(c)
	}
	return p.Capabilities()
}

// Windowed is a provider whose server reports the context window of the model.
type Windowed interface {
	// ContextTokens returns the window in tokens; ok is false if it is not known, or not yet.
	ContextTokens() (tokens int64, ok bool)
}

// Moded is a provider whose server has modes with prices of their own, such as service tiers.
type Moded interface {
	// Mode returns the mode that a call with this configuration asks for, by the server's own word; empty is the usual
	// one, or the server's choice.
	Mode(c *modelv1.GenerateConfig) string
}

// TokenCounter is a provider whose API counts the tokens of a request on demand.
type TokenCounter interface {
	// CountTokens asks how many tokens of input a request has, tools included. Its errors are those of Generate, and
	// ErrCountsNone.
	CountTokens(ctx context.Context, r *Request) (int64, error)
}

// ErrCountsNone is the error of a TokenCounter where the model, or the server that it is at, counts no tokens.
var ErrCountsNone = errors.New("the server counts no tokens")

// Compactor is a provider whose API shortens conversations on demand, for the models whose features say so.
type Compactor interface {
	// Compact makes one attempt to shorten the request's conversation, with instructions, which may be empty. The
	// response has the messages in Compacted, and an output with the usage and without choices. Its errors are those of
	// Generate, and CAPABILITY_UNSUPPORTED where the conversation cannot be compacted ([NoCompaction]). Nothing is
	// streamed.
	Compact(ctx context.Context, r *Request, instructions string) (*Response, error)
}

// Request is one attempt. The gateway has prepared all of it; a provider changes nothing in it.
type Request struct {
	Messages   []*modelv1.ChatMessage
	Tools      []*toolv1.ToolInfo
	ToolChoice *toolv1.ToolChoice
	Config     *modelv1.GenerateConfig
	// Attempt is the number of this attempt within its call, from 1.
	Attempt int
	// Origin identifies on whose behalf the call is made.
	Origin Origin
	// Client means that a client of an endpoint asks, who sees no warnings, and whose tools have schemas of any form.
	Client bool
	// Stream receives the pieces of the answer as they arrive, and may wait for a watcher until the attempt's context
	// ends: the answer is not read meanwhile. It, Progress and Unfinished are called one at a time, while Generate
	// runs. Nil: no watcher.
	Stream func(*modelv1.GenerateDelta)
	// Progress is called whenever anything arrives from the upstream API. Nil: no watcher. A provider that cannot
	// stream never calls it.
	Progress func()
	// Unfinished is called for a stream without an end, whether it failed, was cut off or was abandoned by its caller:
	// with the usage that the upstream API has reported, nil if none, and the number of received pieces. It is also
	// called with the usage of the requests of an attempt before one that fails. Nil ignores it.
	Unfinished func(said *modelv1.ModelUsage, pieces int64)
	// OnHeaders is called with the status and the headers of each answer that comes over a connection of its own, also
	// of a refusal, before the body is read. Nil: no callback.
	OnHeaders func(status int, header http.Header)
	// Hold is called with each number of bytes that an attempt holds until it ends, and waits until there is room for
	// them: those that were read of an answer that is one document, and those that a stream has said. Its error is why
	// there will be none. Nil: there always is.
	Hold func(ctx context.Context, n int) error
	// Record selects whether to record the exchange with the provider.
	Record Record
	// Tokens estimates the messages. Nil: not counted.
	Tokens func() int64
	// MaxAnswerBytes bounds how much of the upstream API's answer is read, in bytes as received. A larger answer is a
	// failure, and is not read further.
	MaxAnswerBytes int64
	// InputWindow is how many tokens of input the model takes, as the operator has set it. Zero: it is not set.
	InputWindow int64
	// Carrier transports the requests of the attempt that ask for the answer. Nil: they have connections of their own.
	Carrier Carrier
}

// Record selects the attempts whose exchange with the provider is recorded.
type Record int

// Records. The zero value keeps nothing.
const (
	RecordNone Record = iota
	RecordFailures
	RecordAll
)

// Of reports whether to record an attempt that ended with err; nil is a success.
func (r Record) Of(err error) bool { return r == RecordAll || r == RecordFailures && err != nil }

// DefaultMaxAnswerBytes bounds an answer by default. A token of a stream takes 150 to 350 bytes on the wire, so that
// answers of any model's maximal length fit.
const DefaultMaxAnswerBytes = 64 << 20

// Streams reports whether the request is to be streamed: as asked, else if its answer is watched, unless it wants
// log-probabilities of the prompt, which servers refuse in streams. One that is carried is not.
func (r *Request) Streams(asked *bool) bool {
	if r.Carrier != nil {
		return false
	}
	if asked != nil {
		return *asked
	}
	return (r.Stream != nil || r.Progress != nil) && r.Config.GetPromptLogprobs() == 0
}

// Conversation identifies the conversation that the request belongs to, for vendors with session affinity: they route
// requests of one conversation to the server whose prompt cache holds it. It is a hash of the run's name in 32 hex
// digits, so that no name of a project leaves the gateway. It is empty if the request belongs to no run, or is sent by
// a Carrier.
func (r *Request) Conversation() string {
	run := r.Origin.Attribution.GetRun()
	if run == "" || r.Carrier != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(run))
	return hex.EncodeToString(sum[:16])
}

// AnswerBound is MaxAnswerBytes with its default.
func (r *Request) AnswerBound() int64 {
	if r.MaxAnswerBytes > 0 {
		return r.MaxAnswerBytes
	}
	return DefaultMaxAnswerBytes
}

// HoldSaid waits until there is room for what pieces of a stream say.
func (r *Request) HoldSaid(ctx context.Context, pieces ...*modelv1.GenerateDelta) error {
	if r.Hold == nil {
		return nil
	}
	said := 0
	for _, piece := range pieces {
		said += dialect.DeltaSize(piece)
	}
	if said == 0 {
		return nil
	}
	return r.Hold(ctx, said)
}

// Origin identifies on whose behalf a call is made. It never changes an answer of a real model.
type Origin struct {
	Project     string
	RequestID   string
	Attribution *effectv1.Attribution
	// Reissued is true when a process that made this call before has died.
	Reissued bool
}

// Response is the result of an attempt.
type Response struct {
	Output *modelv1.ModelOutput
	// Compacted are the messages in place of all but the system messages, in the response to a compaction.
	Compacted []*modelv1.ChatMessage
	// Tokens answer a question for their number, and nothing else is set then.
	Tokens int64
	// Call is the exchange, if Request.Record asked for it.
	Call *modelv1.ModelCall
	// Warnings describe changes to the request, such as a changed tool choice. Options that are not sent are known
	// beforehand ([Fit]).
	Warnings []string
	// Billing is what the answers of the attempt say of their price beside the usage.
	Billing dialect.Billing
	// BrokenOff means that the output is the received part of an answer that was cut off. The gateway sets it.
	BrokenOff bool
}

// Capabilities are the properties of a provider that the gateway must know before it calls. The zero value is a
// provider that accepts text, with one pool.
type Capabilities struct {
	// ConnectionKey distinguishes pools of one account; empty: all models of the account share one.
	ConnectionKey string
	// MaxTokens is the default bound of output tokens; zero leaves it to the server.
	MaxTokens int64
	// ReasoningHeadroom is what a configuration adds to MaxTokens; nil adds nothing.
	ReasoningHeadroom *ReasoningHeadroom
	// LeastEffort is the reasoning_effort with which the model reasons least: `none`, or a word of a model that cannot be
	// kept from it. Empty: it is not known, or the API takes none.
	LeastEffort string
	// ToolsRequired keeps tools in the request when none may be called, since the conversation holds calls.
	ToolsRequired bool
	// MergeUser, MergeAssistant and MergeSystem make the gateway merge consecutive messages of the role.
	MergeUser, MergeAssistant, MergeSystem bool
	// ForceReasoning is the mode of past reasoning regardless of the configuration; AutoReasoning is the mode of AUTO,
	// where unset is ALL.
	ForceReasoning, AutoReasoning modelv1.ReasoningHistory
	// LongCache means that the provider's prompt cache is asked to keep entries for an hour, which costs more.
	LongCache bool
	// Ignored are the configuration options, by their names in GenerateConfig, that do not affect an answer because the
	// API has no place for them. They are not sent.
	Ignored []string
	// Dropped are further options that are not sent. They affect how an answer is made rather than its content, so
	// clients in a vendor's format are not refused for them.
	Dropped []string
	// ExtraBody are the members of extra_body that are sent; nil is all. ExtraBodyDropped are not sent.
	ExtraBody, ExtraBodyDropped []string
	// Fetches are the media whose address the API itself fetches.
	Fetches Fetches
	// Features are the model's supported inputs and features.
	Features *modelv1.Capabilities
	// Hosted are the tools that the vendor runs.
	Hosted Hosted
	// Upstreams are the targets for unchanged requests in formats of vendors, at most one for each dialect.
	Upstreams []*Upstream
	// Batch is the batch API; nil if there is none.
	Batch *BatchSupport
	// Server is the address of the API, by which cached answers of different servers are distinguished; empty if no
	// server answers. It may have a secret in its password or its query.
	Server string
	// Sealer names who reads the seals of the model's reasoning ([Sealer]); seals of others are not sent. A
	// model without one, such as a scripted one, is sent every seal, and its own are of an unknown maker.
	// [Model.CapabilitiesOf] fills it in for providers with a format.
	Sealer string
	// Responses means that the model is asked by the Responses API: texts go back with the ids and phases of the messages
	// that they came in, and reasoning that is neither sealed nor has a summary has no place.
	Responses bool
	// SignCalls returns a model's message with what the API demands of its calls if another model made them, in a
	// conversation in which other models have spoken; nil: it demands nothing. It does not modify the message.
	SignCalls func(*modelv1.ChatMessage) *modelv1.ChatMessage
	// RefusesBlank means that the API refuses texts without a visible character, and white space at the end of a model's
	// message that is to be continued. A client's messages are sent without them.
	RefusesBlank bool
	// UserFirst means that the API refuses a conversation that begins with the model's message, or calls after another
	// message of the model. A client's conversation then has a message of the user before it, and the model's consecutive
	// messages are merged.
	UserFirst bool
	// CallIDLen is the number of letters and digits that an id of a call must have; zero: the API takes others too. A
	// client's other ids are replaced.
	CallIDLen int
	// UniqueCalls means that the API refuses a conversation in which two calls have one id. Some models number their calls
	// from the start in each turn.
	UniqueCalls bool
	// CallsNeedTools means that the API refuses calls in a conversation for which no tools are on offer. A client's
	// request without tools then offers one that does nothing.
	CallsNeedTools bool
}

// Sealer names who reads the seals of reasoning in a format: an account at a server, and of one that has models of
// several vendors those of one vendor. address is the server's URL.
func Sealer(format, address, account string, vendor ...string) string {
	host := address
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host = u.Host
	}
	return strings.Join(append([]string{format, host, account}, vendor...), "/")
}

// Fetches are kinds of media that an API fetches from the web. A server of one's own has none: what it fetches may be
// within the network.
type Fetches struct{ Images, Documents bool }

// Has reports whether a part of a message is media of such a kind.
func (f Fetches) Has(part *contentv1.Content) bool {
	return f.Images && part.GetImage() != nil || f.Documents && part.GetDocument() != nil
}

// Upstream returns the target for unchanged requests in a dialect; nil if there is none.
func (c Capabilities) Upstream(dialect string) *Upstream {
	for _, u := range c.Upstreams {
		if u.Dialect == dialect {
			return u
		}
	}
	return nil
}

// DefaultConnections is the number of requests in flight of a pool that does not adapt, if a call sets none: that of
// Inspect for all providers that are reached over a network.
const DefaultConnections = 10

// Kind is a provider as it is registered.
type Kind struct {
	// Name precedes the first `/` of a model.
	Name        string
	Description string
	// Dialect is the format that it speaks.
	Dialect string
	// Models are names that are known; others may be taken too.
	Models []string
	// Accounts are the configured accounts, without those of Clouds.
	Accounts []*modelv1.Account
	// Clouds are the accounts of models that clouds serve, each with its service ([InCloud]).
	Clouds []*modelv1.Account
	// Vendor is the vendor's own address; empty if that is not known.
	Vendor string
	// AccountInModel means that a model's name begins with its account, and that requests name no account beside it.
	AccountInModel bool
	// Open gives access to a model. It does no I/O.
	Open func(Spec) (Provider, error)
	// Check validates references in a model's arguments, such as a script; nil if they have none.
	Check func(context.Context, Spec) error
}

// Spec identifies what to open.
type Spec struct {
	// Project is whose calls the instance serves; two projects never share one.
	Project string
	// Model is the name behind the first `/`.
	Model string
	// Account is the configured name of the account; `default` by default.
	Account string
	// BaseURL is the requested address; empty is the account's own.
	BaseURL string
	// Args are the arguments of the provider, a JSON object as text; empty is none.
	Args string

	// credentials selects a credential of the account, and takes all of them; nil selects the first.
	credentials *selection
}

// Arguments decodes Args into a struct, which is unchanged if there are none. Members that the struct does not have,
// and anything after the object, are an INVALID_REQUEST.
func (s Spec) Arguments(into any) error {
	if s.Args == "" {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(s.Args))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			var members map[string]json.RawMessage
			if json.Unmarshal([]byte(s.Args), &members) == nil && members[strings.Trim(name, `"`)] == nil {
				return InvalidArguments(fmt.Errorf("unknown argument %s, in an object of another argument", name))
			}
			names := memberNames(into)
			err = fmt.Errorf("unknown argument %s; %s%s", name, suggest.Question(strings.Trim(name, `"`), names), suggest.Known(names))
		} else if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && mismatch.Field != "" {
			err = fmt.Errorf("%s must be %s, not a JSON %s", mismatch.Field, config.KindOf(mismatch.Type), mismatch.Value)
		}
		return InvalidArguments(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return InvalidArguments(errors.New("it is one JSON object, and more follows"))
	}
	return nil
}

// memberNames are the names of the members of the JSON object that a struct is, given by a pointer to it.
func memberNames(of any) []string {
	var names []string
	for field := range reflect.TypeOf(of).Elem().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// InvalidArguments is the error for invalid Args.
func InvalidArguments(err error) error {
	return rpcerr.InvalidField("model_args_json", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// Clock measures the duration of an attempt, for the output.
func Clock(start time.Time) *float64 { return new(time.Since(start).Seconds()) }
