package dialecttest

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// Words in place of envelopes in the documents of Reopen.
const (
	// OwnEnvelope has reasoning that the server sealed, with the seal OwnSeal, the summary `own thought` and the
	// signature `rs_1`.
	OwnEnvelope = "OWN-ENVELOPE"
	// OtherEnvelope has reasoning that another server sealed, with the summary `other thought`.
	OtherEnvelope = "OTHER-ENVELOPE"
	// MuteEnvelope has reasoning that another server sealed, of which nothing is readable.
	MuteEnvelope = "MUTE-ENVELOPE"
	// LaterEnvelope is an envelope of a later version.
	LaterEnvelope = "LATER-ENVELOPE"
	// OwnSeal is a seal of the server, in base64.
	OwnSeal = "b3duIHNlYWw="
)

// Reopen checks what the server of a format gets in place of the envelopes in clients' requests. cases are requests,
// and what they become. AsBytes means that envelopes are in base64.
func Reopen(t *testing.T, codec dialect.Codec, asBytes bool, cases map[string]string) {
	t.Helper()
	reopener, ok := codec.(dialect.Reopener)
	require.True(t, ok)
	sealed := func(seal string, thought *string, by string) *contentv1.Content {
		part := chat.SealedPart(seal, thought)
		part.GetReasoning().SealedBy = by
		return part
	}
	own := sealed(OwnSeal, new("own thought"), "own")
	own.GetReasoning().Signature = new("rs_1")
	envelopes := []string{
		OwnEnvelope, dialect.Seal(own),
		OtherEnvelope, dialect.Seal(sealed("c2VjcmV0", new("other thought"), "other")),
		MuteEnvelope, dialect.Seal(sealed("c2VjcmV0", nil, "other")),
		LaterEnvelope, strings.Replace(dialect.Seal(own), ":2:", ":3:", 1),
	}
	if asBytes {
		for i := 1; i < len(envelopes); i += 2 {
			envelopes[i] = base64.StdEncoding.EncodeToString([]byte(envelopes[i]))
		}
	}
	closed := strings.NewReplacer(envelopes...)
	for request, want := range cases {
		request = closed.Replace(request)
		given := []byte(request)
		got := reopener.Reopen(given, takenBy("own"), true)
		assert.Equal(t, want, string(got), request)
		assert.Equal(t, request, string(given), "the request stays as it is")
		assert.True(t, json.Valid(got), "%s", got)
		assert.NotContains(t, string(got), "evalfleet:")
		again := reopener.Reopen(got, takenBy("own"), true)
		assert.Same(t, &got[0], &again[0], "a request without envelopes is the same")
	}
}

// takenBy is a server that takes its own seals, and of others what is readable.
func takenBy(sealer string) func(*contentv1.Content) *contentv1.Content {
	return func(part *contentv1.Content) *contentv1.Content {
		thought := dialect.Readable(part)
		switch {
		case part.GetReasoning().GetSealedBy() == sealer:
			return part
		case thought == "":
			return nil
		default:
			return chat.ReasoningPart(thought)
		}
	}
}

// checkReopened checks that a client's body is still JSON with its envelopes taken out.
func checkReopened(t *testing.T, codec dialect.Codec, body []byte) {
	t.Helper()
	reopener, ok := codec.(dialect.Reopener)
	if !ok || !json.Valid(body) {
		return
	}
	for _, signs := range []bool{false, true} {
		if got := reopener.Reopen(body, takenBy("own"), signs); !json.Valid(got) {
			t.Fatalf("%q becomes %q", body, got)
		}
	}
}
