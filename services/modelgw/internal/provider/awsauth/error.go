package awsauth

import (
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// AddType adds to an error the type that AWS has in a header, unless its body had one.
func AddType(h http.Header, said *dialect.Error) {
	if said.Type == "" {
		said.Type = bedrockconverse.ErrorType(h.Get(bedrockconverse.ErrorHeader))
	}
}

// classes are the classes of the types of errors that AWS's clients repeat, whatever the status.
var classes = map[string]provider.Class{
	"ThrottlingException":                    provider.RateLimit,
	"RequestLimitExceeded":                   provider.RateLimit,
	"Throttling":                             provider.RateLimit,
	"RequestThrottled":                       provider.RateLimit,
	"TooManyRequestsException":               provider.RateLimit,
	"ProvisionedThroughputExceededException": provider.RateLimit,
	"TransactionInProgressException":         provider.Transient,
	"RequestTimeout":                         provider.Transient,
	"ServiceUnavailable":                     provider.Transient,
	"ServiceUnavailableException":            provider.Transient,
}

// ClassOf returns the class of an error by its type; ok is false for a type that AWS's clients do not repeat.
func ClassOf(said *dialect.Error) (class provider.Class, ok bool) {
	class, ok = classes[said.Type]
	return class, ok
}

// refusals are the types of errors that refuse the credentials. AccessDeniedException refuses a right.
var refusals = map[string]bool{"UnrecognizedClientException": true, "ExpiredTokenException": true, "InvalidSignatureException": true}

// Refuses reports whether an error refuses the credentials, so that they should be forgotten.
func Refuses(said *dialect.Error) bool { return refusals[said.Type] }
