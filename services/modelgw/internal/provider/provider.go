// Package provider is the port to upstream model APIs: what the gateway asks of one, what it must know of it
// beforehand, and how it fails.
//
// A Kind is a provider as it is registered under a name, such as `openai`. Opened for a model, an account and arguments
// it gives a Provider, which makes one attempt per call and nothing more: retries, limits, caches and budgets are the
// gateway's. The registry keeps what it opened, so that equal references share one instance and its state.
package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Provider makes attempts on one model. Its methods are safe for concurrent use.
type Provider interface {
	// Capabilities says what the gateway must know before it calls. It is the same each time.
	Capabilities() Capabilities
	// Check fails where every call with this configuration would. It calls no one.
	Check(c *modelv1.GenerateConfig) error
	// Generate makes one attempt. Failures of the upstream API are *Error. What stops the model without being a failure
	// (a full context, a content filter) is a stop reason of an output.
	Generate(ctx context.Context, r *Request) (*Response, error)
	// Close releases what the instance holds. Attempts in flight go on. It may be called more than once.
	Close() error
}

// Request is one attempt. The gateway has prepared all of it; a provider changes nothing in it.
type Request struct {
	Messages   []*modelv1.ChatMessage
	Tools      []*toolv1.ToolInfo
	ToolChoice *toolv1.ToolChoice
	Config     *modelv1.GenerateConfig
	// Attempt is the number of this attempt within its call, from 1.
	Attempt int
	// Origin says on whose behalf the call is made.
	Origin Origin
	// Stream takes the pieces of the answer as they come. Nil: nobody looks.
	Stream func(*modelv1.GenerateDelta)
	// Progress is called whenever anything arrives from the upstream API. Nil: nobody watches. A provider that cannot
	// stream never calls it.
	Progress func()
	// Unfinished is told of a stream that has no end, whether it failed, was cut off or was left by whoever asked: what
	// the upstream API has said of usage, where nil is nothing, and how many pieces came. Nil: nobody counts.
	Unfinished func(said *modelv1.ModelUsage, pieces int64)
	// Record reports whether to keep what is said to the provider.
	Record Record
	// Tokens estimates the messages. Nil: nobody has counted them.
	Tokens func() int64
	// MaxAnswerBytes bounds what is read of the upstream API's answer, in bytes as they come. A larger one is a
	// failure, and is read no further.
	MaxAnswerBytes int64
}

// Record says of which attempts to keep what was said to the provider.
type Record int

// Records. The zero value keeps nothing.
const (
	RecordNone Record = iota
	RecordFailures
	RecordAll
)

// Of reports whether to keep what was said in an attempt that ended with err; nil is none.
func (r Record) Of(err error) bool { return r == RecordAll || r == RecordFailures && err != nil }

// DefaultMaxAnswerBytes bounds an answer where nothing else is said. A token of a stream takes 150 to 350 bytes on its
// way, so that answers as long as any model gives have room.
const DefaultMaxAnswerBytes = 64 << 20

// AnswerBound is MaxAnswerBytes with its default.
func (r *Request) AnswerBound() int64 {
	if r.MaxAnswerBytes > 0 {
		return r.MaxAnswerBytes
	}
	return DefaultMaxAnswerBytes
}

// Origin says on whose behalf a call is made. It never changes an answer of a real model.
type Origin struct {
	Project     string
	RequestID   string
	Attribution *effectv1.Attribution
	// Reissued is true when a process that made this call before has died.
	Reissued bool
}

// Response is what an attempt gave.
type Response struct {
	Output *modelv1.ModelOutput
	// Call is what was said, when Request.Record asked for it.
	Call *modelv1.ModelCall
	// Warnings say what of the request was changed, such as a choice among the tools. Options that are not sent are
	// known beforehand ([Sent]).
	Warnings []string
	// BrokenOff says that the output is what came of an answer that was cut off. The gateway sets it.
	BrokenOff bool
}

// Capabilities is what the gateway must know of a provider before it calls. The zero value is a provider that takes
// text, under one pool.
type Capabilities struct {
	// ConnectionKey tells pools of one account apart; empty: all models of the account share one.
	ConnectionKey string
	// MaxConnections is the size of a pool that does not adapt, where nothing else is said; zero is 10.
	MaxConnections int
	// MaxTokens is the default bound of output tokens; zero leaves it to the server.
	MaxTokens int64
	// ReasoningHeadroom is what a configuration adds to MaxTokens; nil is nothing.
	ReasoningHeadroom *ReasoningHeadroom
	// ToolsRequired keeps tools in the request when none may be called, since the conversation holds calls.
	ToolsRequired bool
	// MergeUser, MergeAssistant and MergeSystem ask that neighbouring messages of a role become one.
	MergeUser, MergeAssistant, MergeSystem bool
	// ForceReasoning is the mode of past reasoning whatever is configured; AutoReasoning is the one of AUTO, where
	// unset is ALL.
	ForceReasoning, AutoReasoning modelv1.ReasoningHistory
	// LongCache says that the provider's prompt cache is asked to keep entries for an hour, which costs more.
	LongCache bool
	// Ignored are the options of a configuration, by their names in GenerateConfig, that an answer does not follow: the
	// API has no place for them. They are not sent.
	Ignored []string
	// Dropped are further options that are not sent. They shape how an answer is made rather than what is in it, so
	// that clients in a vendor's format are not refused for them.
	Dropped []string
	// ExtraBody are the members of extra_body that are sent; nil is all. ExtraBodyDropped are not sent.
	ExtraBody, ExtraBodyDropped []string
	// Features are what a model can take and do.
	Features *modelv1.Capabilities
	// Upstream is where requests in a vendor's own format go as they came; nil where there is no such place.
	Upstream *Upstream
}

// Connections is MaxConnections with its default.
func (c Capabilities) Connections() int {
	if c.MaxConnections > 0 {
		return c.MaxConnections
	}
	return defaultConnections
}

const defaultConnections = 10

// Kind is a provider as it is registered.
type Kind struct {
	// Name stands before the first `/` of a model.
	Name        string
	Description string
	// Dialect is the format that it speaks.
	Dialect string
	// Models are names that are known; others may be taken too.
	Models []string
	// Accounts are those that are configured.
	Accounts []*modelv1.Account
	// AccountInModel says that a model's name begins with its account, and that requests name none beside it.
	AccountInModel bool
	// Open gives access to a model. It does no I/O.
	Open func(Spec) (Provider, error)
	// Check looks at what a model's arguments name beside themselves, such as a script; nil where they name nothing.
	Check func(context.Context, Spec) error
}

// Spec says what to open.
type Spec struct {
	// Project is whose calls the instance serves; two projects never share one.
	Project string
	// Model is the name behind the first `/`.
	Model string
	// Account is the configured name of the account; `default` unless another one is asked for.
	Account string
	// BaseURL is what the request asks for; empty is the account's own.
	BaseURL string
	// Args are the arguments of the provider, a JSON object as text; empty is none.
	Args string
}

// Arguments reads Args into a struct; where there are none it stays as it is. Members that the struct does not have,
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
			err = fmt.Errorf("unknown argument %s; %sknown: %s", name, suggest.Question(strings.Trim(name, `"`), names), strings.Join(names, ", "))
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

// InvalidArguments says what is wrong with Args.
func InvalidArguments(err error) error {
	return rpcerr.InvalidField("model_args_json", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// Clock is how long an attempt took, as an output tells it.
func Clock(start time.Time) *float64 { return new(time.Since(start).Seconds()) }
