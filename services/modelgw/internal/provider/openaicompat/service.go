package openaicompat

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// Service is a service that speaks OpenAI's formats, as data: where it is, and in what it differs. The zero
// value of every field but Name is what most of these services do.
type Service struct {
	// Name is the provider's name, and the key of its configuration. Description says what it is, in a few words.
	Name, Description string
	// Address is the service's own; empty if each account needs one. [accountID] in it is replaced by the account's.
	Address string
	// KeyEnv and AddressEnv are the variables of the key and of the address, the first one that is set counts. Empty:
	// the name in upper case, `_` for `-`, followed by `_API_KEY` and `_BASE_URL`.
	KeyEnv, AddressEnv []string
	// Command starts a server of this kind on the operator's machine; empty for services of others.
	Command string
	// AccountIDEnv is the variable of the account's id, of a service that wants one.
	AccountIDEnv string
	// Identity is a service of Azure, whose accounts may have an identity in place of a key.
	Identity bool
	// Keyless is a service that wants no key; it is sent DefaultKey where none is configured.
	Keyless bool
	// DefaultKey is no secret.
	DefaultKey string

	// Path is where chat completions are, below the address; empty is the usual place. KeyHeader has the key
	// too, beside the bearer token.
	Path, KeyHeader string
	// ConversationHeader and ConversationMember are the header, or the member of a request, that says to which
	// conversation it belongs, so that it reaches the server whose prompt cache has the conversation.
	ConversationHeader, ConversationMember string
	// Sent is a model's name as it is sent; nil is as it is given.
	Sent func(name string) (string, error)

	// MaxTokens is the default bound of output tokens; zero leaves it to the service.
	MaxTokens int64
	// PoolByAddress is a server whose models share its connections.
	PoolByAddress bool
	// MergeTurns merges consecutive messages of the user, and of the assistant; MergeSystem those of the system.
	MergeTurns, MergeSystem bool
	// Streamed streams each answer, and StreamedOver those with a larger bound of output tokens than this; by default
	// answers are streamed that are watched. WholeLogprobs excepts those with log-probabilities, which the service's
	// streams have in another form. Answers with log-probabilities of the prompt are not streamed: streams lack these,
	// and vLLM refuses such a request. The model argument `stream` overrides all.
	Streamed      bool
	StreamedOver  int64
	WholeLogprobs bool
	// LaxTools does not ask for strict tools, which clients of an endpoint never have, and MaxCompletionTokens is the name
	// of the bound of output tokens of all models, in chat completions.
	LaxTools, MaxCompletionTokens bool
	// PlainTools sends tools without saying whether they are strict.
	PlainTools bool
	// PlainTurns, JoinTexts, EmptyCalls, OmitEmpty, ImagesOnly and NoStreamUsage are as in [openaichat.Request].
	PlainTurns, JoinTexts, EmptyCalls, OmitEmpty, ImagesOnly, NoStreamUsage bool
	// NoExtraBody sends no extra_body, and WholeExtraBody all of it, also to the Responses API.
	NoExtraBody, WholeExtraBody bool
	// MergeUser merges consecutive messages of the user alone.
	MergeUser bool
	// NoReasoning sends no reasoning of earlier answers.
	NoReasoning bool
	// WholeSchemas sends the schemas of tools and of the answer with all their keywords.
	WholeSchemas bool
	// Sampling are options that chat completions lack and servers of this kind take, `best_of` or `top_k`. A server
	// that refuses one is asked without.
	Sampling []string
	// FillEmpty replaces empty contents of the assistant.
	FillEmpty bool
	// Raw is a server that completes prompts too; a provider of its own, named `<service>-completions`, asks for that.
	Raw bool
	// ListsWindows is a server whose list of models has their context windows.
	ListsWindows bool
	// ListsDeployments is a proxy whose list says which models are behind its names.
	ListsDeployments bool

	// Models are the differences between the service's models. Of those whose pattern a name matches, the first one
	// counts.
	Models []Models
	// ReasoningObject sends the effort as a member of an object `reasoning`; ReasoningTokens sends reasoning_tokens
	// there if there is no effort.
	ReasoningObject, ReasoningTokens bool
	// Arguments takes the service's own arguments out of a model's, and returns the members of requests for them. A
	// member `reasoning_enabled` becomes one of the object `reasoning`. Nil: there are none.
	Arguments func(all *orderedjson.Object) ([]dialect.Member, error)
	// Adapt changes a request where no other field can express it, and returns warnings. The configuration is the
	// request's own.
	Adapt func(r *dialect.Request) []string

	// Batches is the format of the service's batch API; nil if there is none. It takes chat completions.
	Batches *batchapi.Dialect

	// Tools replaces tools by the service's own, or refuses them; nil takes all.
	Tools func(r *dialect.Request) error
	// Hosted are the tools that the service runs.
	Hosted provider.Hosted

	// Responses is a service whose own API is the Responses API; it is asked by it unless a model argument says
	// otherwise. ResponsesMembers are added to such requests.
	Responses bool
	// ResponsesOnly is such a service without another API.
	ResponsesOnly    bool
	ResponsesMembers []dialect.Member
	// RefusalStops means that an answer in which the model refuses has the stop reason of filtered content.
	RefusalStops bool

	// Finish adds to an output what the format leaves out; see [exchange.Quirks]. name is what was asked for.
	Finish func(answer dialect.Response, output *modelv1.ModelOutput, name string) error

	// Full are the words or codes of the service's own for a full context, by status.
	Full map[int][]string
	// OwnStops means that no other error is an output: the service does not have OpenAI's codes.
	OwnStops bool
	// Busy are statuses that ask to slow down, beside 429.
	Busy []int
	// RetryMalformed means that an answer that cannot be read may be repeated; without it, only one that is no JSON
	// object.
	RetryMalformed bool
	// Broken are words, in lower case, of errors that no repetition mends.
	Broken []string
}

// Models are models of a service that differ from its others.
type Models struct {
	// Named matches their names; nil matches all.
	Named *regexp.Regexp
	// Efforts are the words that are sent for efforts; an effort without one is sent unchanged. An empty word omits it.
	Efforts map[string]string
	// LeastEffort is the effort with which they reason least, as in [provider.Capabilities].
	LeastEffort string
	// Ignored are options that they do not take, as in [provider.Capabilities].
	Ignored []string
	// Emulate puts tools into a prompt, unless a model argument says otherwise, and Unbounded leaves the bound of
	// output tokens to the service.
	Emulate, Unbounded bool
	// Marks marks requests for the prompt cache of Anthropic's models.
	Marks bool
	// Replay is how reasoning of earlier answers is sent in chat completions; nil is as text, or as it came.
	Replay func(part *contentv1.Content) (text string, members []dialect.Member)
}

// reasoningEnabled is the argument that switches reasoning on or off.
const reasoningEnabled = "reasoning_enabled"

// accountID is the placeholder for the id of an account in an address.
const accountID = "{account_id}"

// of returns the differences of a model.
func (s *Service) of(model string) Models {
	for _, m := range s.Models {
		if m.Named == nil || m.Named.MatchString(strings.ToLower(model)) {
			return m
		}
	}
	return Models{}
}

// keyEnv and addressEnv are the variables with their defaults.
func (s *Service) keyEnv() []string     { return orOwn(s.KeyEnv, s.Name, "_API_KEY") }
func (s *Service) addressEnv() []string { return orOwn(s.AddressEnv, s.Name, "_BASE_URL") }

func orOwn(given []string, name, suffix string) []string {
	if given != nil {
		return given
	}
	return []string{envName(name) + suffix}
}

// envName is a service's name in variables.
func envName(service string) string { return strings.ToUpper(strings.ReplaceAll(service, "-", "_")) }

// stopStatuses are those of errors that may represent an output.
var stopStatuses = []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusForbidden, http.StatusRequestEntityTooLarge}

// quirks interpret the service's errors. An answer for a full context names its model by label.
func (s *Service) quirks(name, label string) exchange.Quirks {
	var finish func(dialect.Response, *modelv1.ModelOutput) error
	if s.Finish != nil {
		finish = func(answer dialect.Response, output *modelv1.ModelOutput) error {
			return s.Finish(answer, output, name)
		}
	}
	return exchange.Quirks{
		Finish:          finish,
		RetryUnreadable: true,
		RetryMalformed:  s.RetryMalformed,
		StopStatuses:    stopStatuses,
		OwnStops:        s.OwnStops,
		Stop: func(status int, e *dialect.Error, _ string) (*modelv1.ModelOutput, bool) {
			if !containsAny(e.Message, s.Full[status]) && !slices.Contains(s.Full[status], e.Code) {
				return nil, false
			}
			return chat.MessageOutput(label, chat.Assistant(e.Message), modelv1.StopReason_STOP_REASON_MODEL_LENGTH), true
		},
		Class: func(status int, e *dialect.Error, class provider.Class) provider.Class {
			switch {
			case containsAny(strings.ToLower(e.Message), s.Broken):
				return provider.Final
			case slices.Contains(s.Busy, status):
				return provider.RateLimit
			default:
				return class
			}
		},
	}
}

func containsAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}
