package provider_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestAnErrorEndsWithWords(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]provider.Error{
		"p answered 500":           {Status: 500, Cause: &dialect.Error{}},
		"p answered 500: m":        {Status: 500, Message: "m", Cause: &dialect.Error{}},
		"p: the answer is no chat": {Cause: &dialect.MalformedError{Answer: "chat"}},
		"p":                        {},
	} {
		e.Provider = "p"
		assert.Equal(t, want, e.Error())
	}
}

func TestTheRecordOfAFailureIsSmall(t *testing.T) {
	t.Parallel()
	const bound = 32 << 10
	long := strings.Repeat("é", 1<<20)
	for name, test := range map[string]struct{ request, want string }{
		"a short one":         {`{"model":"m","messages":[{"content":"hello"}]}`, `{"model":"m","messages":[{"content":"hello"}]}`},
		"a long text":         {`{"model":"m","messages":[{"content":"` + long + `"}]}`, `{"model":"m","messages":[{"content":"` + long[:1000] + `… [2096152 bytes left out]"}]}`},
		"many texts":          {`{"messages":["` + strings.Repeat(`word","`, 1<<15) + `"]}`, `{"left_out":"229393 bytes"}`},
		"what is cut already": {`{"events":[` + strings.Repeat(`1,`, 1<<15), `{"left_out":"65547 bytes"}`},
	} {
		e, ok := rpcerr.As(provider.RPC(&provider.Error{Provider: "p", Status: 400, Call: &modelv1.ModelCall{RequestJson: test.request, Error: true}}))
		require.True(t, ok, name)
		var call *modelv1.ModelCall
		for _, detail := range e.Details {
			if c, ok := detail.(*modelv1.ModelCall); ok {
				call = c
			}
		}
		assert.Equal(t, test.want, call.GetRequestJson(), name)
		assert.LessOrEqual(t, len(call.GetRequestJson()), bound, name)
		assert.True(t, json.Valid([]byte(call.GetRequestJson())), name)
		assert.True(t, call.GetError(), name)
	}
}
