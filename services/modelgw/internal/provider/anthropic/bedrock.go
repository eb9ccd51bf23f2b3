package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// bedrockPrefix begins the names of models that Amazon Bedrock serves.
const bedrockPrefix = "bedrock/"

// BedrockConfig sets up access to Anthropic's models on Amazon Bedrock, by the API InvokeModel.
type BedrockConfig struct {
	// APIKey is a Bedrock API key for the account `default`; it is sent in the place of a signature.
	APIKey config.Secret `yaml:"api_key" env:"AWS_BEARER_TOKEN_BEDROCK"`
	// BaseURL is the address of the account `default`; default is Bedrock's own in the region.
	BaseURL string `yaml:"base_url" env:"ANTHROPIC_BEDROCK_BASE_URL"`
	// BedrockBaseURL is used if BaseURL is not set.
	BedrockBaseURL string `yaml:"bedrock_base_url" env:"BEDROCK_ANTHROPIC_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_ANTHROPIC_BEDROCK_ALLOWED_BASE_URLS"`
	awsauth.Default `yaml:",inline"`
	// Accounts are further accounts by name.
	Accounts map[string]bedrockaccess.Account `yaml:"accounts"`
}

// Validate implements config.Validator.
func (c *BedrockConfig) Validate() error { return bedrockaccess.Check(c.Accounts) }

// all are the accounts.
func (c BedrockConfig) all(client *http.Client) *bedrockaccess.Accounts {
	named := provider.ByName(c.Accounts, bedrockaccess.Account{
		APIKey: c.APIKey, BaseURL: cmp.Or(c.BaseURL, c.BedrockBaseURL), AllowedBaseURLs: c.AllowedBaseURLs, Account: c.Account(),
	})
	return bedrockaccess.New(bedrockaccess.API{
		Provider: Name + "/bedrock", Address: bedrockaccess.Runtime,
		Hint: "set AWS_REGION and credentials of AWS (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role), or AWS_BEARER_TOKEN_BEDROCK, " +
			"or the same below anthropic.bedrock in the configuration of modelgw",
	}, named, client)
}

// openBedrock gives a model access to Bedrock.
func (h *host) openBedrock(m *model, spec provider.Spec) error {
	access, err := h.bedrock.Open(spec, "")
	if err != nil {
		return err
	}
	m.headers, m.server = http.Header{}, access.Server()
	m.door = &bedrockDoor{access: access, path: "/model/" + awsauth.Segment(string(m.name)) + "/"}
	return nil
}

// bedrockDoor is Bedrock's API, whose requests the credentials of now sign.
type bedrockDoor struct {
	access *bedrockaccess.Access
	path   string
}

// bedrockQuirks interpret AWS's errors. Those that AWS's clients do not repeat have the class of their status.
var bedrockQuirks = exchange.Quirks{
	Header: awsauth.AddType,
	Class: func(_ int, said *dialect.Error, class provider.Class) provider.Class {
		if known, ok := awsauth.ClassOf(said); ok {
			return known
		}
		return class
	},
	Auth: awsauth.Refuses,
}

func (d *bedrockDoor) enter(ctx context.Context) (*entry, error) {
	to, err := d.access.Target(ctx)
	if err != nil {
		return nil, err
	}
	x := &exchange.Exchange{Codec: to.Codec(bedrockCodec{}), HTTP: to.HTTP, Provider: Name, Quirks: bedrockQuirks}
	return &entry{Exchange: x, header: to.Header, refused: d.access.Forget, messages: func(stream bool) string {
		if stream {
			return to.Endpoint + d.path + "invoke-with-response-stream"
		}
		return to.Endpoint + d.path + "invoke"
	}}, nil
}

// bedrockCodec is the format as Bedrock has it: events are within frames of AWS, and errors are AWS's.
type bedrockCodec struct{ format.Codec }

// DecodeError implements dialect.Codec.
func (c bedrockCodec) DecodeError(body []byte) *dialect.Error {
	var own struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &own) == nil && own.Error != nil {
		return c.Codec.DecodeError(body)
	}
	said := bedrockconverse.Codec{}.DecodeError(body)
	said.Transient = said.Transient || c.Codec.DecodeError([]byte(said.Message)).Transient
	return said
}

var errPayload = errors.New("a frame holds no event")

// ReadEvents implements dialect.Codec. Each frame holds one event.
func (bedrockCodec) ReadEvents(stream io.Reader) iter.Seq2[dialect.Event, error] {
	return func(yield func(dialect.Event, error) bool) {
		frames := awsstream.NewReader(stream)
		for {
			frame, err := frames.Next()
			if err == nil && frame == nil {
				return
			}
			var event dialect.Event
			if err == nil {
				event, err = eventOf(frame)
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// eventOf is the event in a frame. An exception becomes an event of an error.
func eventOf(frame *awsstream.Frame) (dialect.Event, error) {
	if frame.Header(awsstream.HeaderKind) != awsstream.KindEvent {
		return dialect.Event{Type: "error", Data: failureOf(frame)}, nil
	}
	var chunk struct {
		Bytes []byte `json:"bytes"`
	}
	if err := json.Unmarshal(frame.Payload, &chunk); err != nil || !json.Valid(chunk.Bytes) {
		return dialect.Event{}, awsstream.Corrupt(errPayload)
	}
	return dialect.Event{Data: bytes.Clone(chunk.Bytes)}, nil
}

// exceptionStatuses are the statuses of exceptions within a stream.
var exceptionStatuses = map[string]int{
	"ThrottlingException": http.StatusTooManyRequests, "ValidationException": http.StatusBadRequest, "AccessDeniedException": http.StatusForbidden,
	"ModelTimeoutException": http.StatusGatewayTimeout,
}

// failureOf is the event of an exception, in the format. One that is not known is the server's fault.
func failureOf(frame *awsstream.Frame) []byte {
	kind := bedrockconverse.ErrorType(cmp.Or(frame.Header(awsstream.HeaderException), frame.Header(awsstream.HeaderCode)))
	var said struct{ Message string }
	_ = json.Unmarshal(frame.Payload, &said)
	status := cmp.Or(exceptionStatuses[kind], http.StatusInternalServerError)
	message := cmp.Or(said.Message, frame.Header(awsstream.HeaderMessage), kind)
	return format.Codec{}.AppendError(nil, dialect.Failure{Status: status, Message: message})
}
