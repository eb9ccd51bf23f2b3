package modelgw_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// A name that is not UTF-8 can be no label of a metric: after one call of it no scrape would have an answer.
func TestANameThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	g := serveMessages(t, vendorWith(t, says(http.StatusOK, "application/json", `{}`)), func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
	answer := g.post(t, geminiPath+"anthropic/claude%ff:generateContent", `{"contents":[{"parts":[{"text":"q"}]}]}`)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	read(t, answer)
	_, err := registry.Gather()
	require.NoError(t, err)
}

// A name is kept: by pools, and after an answer by metrics. A script answers to any.
func TestANameThatIsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	for length, want := range map[int]int{bound.ModelNameBytes: http.StatusOK, bound.ModelNameBytes + 1: http.StatusNotFound} {
		name := "mockllm/" + strings.Repeat("m", length-len("mockllm/"))
		answer := g.post(t, chatPath, `{"model":"`+name+`","messages":[{"role":"user","content":"q"}]}`)
		assert.Equal(t, want, answer.StatusCode)
		if said := read(t, answer); want != http.StatusOK {
			assert.Less(t, len(said), 1<<10, "an error repeats only a part of it")
		}
		r := ask("", "q")
		r.Model = name
		_, err := g.models.Generate(t.Context(), r)
		assert.Equal(t, want != http.StatusOK, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
	}
}

// Bytes that are no UTF-8 in what is kept as it came, such as a tool's schema, become U+FFFD, as in texts. A keyed call
// is stored, and what is stored is UTF-8.
func TestAToolsSchemaThatIsNotUTF8IsTaken(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	const schema = "{\"type\":\"object\",\"properties\":{\"\x8d\":{}}}"
	for path, body := range map[string]string{
		chatPath:                                 `{"model":"mockllm/m","messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","parameters":` + schema + `}}]}`,
		messagesPath:                             `{"model":"mockllm/m","max_tokens":5,"messages":[{"role":"user","content":"q"}],"tools":[{"name":"f","input_schema":` + schema + `}]}`,
		responsesPath:                            `{"model":"mockllm/m","input":"q","tools":[{"type":"function","name":"f","parameters":` + schema + `}]}`,
		geminiPath + "mockllm/m:generateContent": `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"f","parameters":` + schema + `}]}]}`,
	} {
		answer := g.post(t, path, body, "Idempotency-Key", "k-"+path[:4]+path[len(path)-4:])
		assert.Equal(t, http.StatusOK, answer.StatusCode, path)
		read(t, answer)
	}
}

// A slash that is written as %2F is a character of a name, in the paths of endpoints too: what filters paths before the
// gateway sees the same path as the gateway.
func TestAnEscapedSlashDividesNoPath(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	answer := g.post(t, "/v1/chat%2Fcompletions", `{"model":"mockllm/model","messages":[{"role":"user","content":"q"}]}`)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode, "%s", read(t, answer))
}
