package rpcerr_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
)

var update = flag.Bool("update", false, "write docs/errors.md")

const reference = "../../docs/errors.md"

const head = `# Errors

<!-- Written from proto/evalfleet/errors/v1; after a change run: go test ./pkg/rpcerr -update -->

Every error has a status, a message for people, and a reason for programs: branch on the reason, and treat one that you do not know by its status alone. The message may change.

Over gRPC the reason is in a ` + "`google.rpc.ErrorInfo`" + ` among the details of the status, with the domain ` + "`evalfleet.dev`" + `. Over REST every error has this form, in a stream too, where the event is ` + "`error`" + `:

` + "```json" + `
{"error": {"code": 404, "status": "NOT_FOUND", "message": "no projects/default/runs/r1",
           "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RESOURCE_NOT_FOUND", "domain": "evalfleet.dev",
                        "metadata": {"resource": "projects/default/runs/r1"}}]}}
` + "```" + `

Where fields of the request are at fault, ` + "`google.rpc.BadRequest`" + ` names them, over REST as JSON does. ` + "`google.rpc.RetryInfo`" + ` says when to come back.

**Again** says what may become of the same call, with the same key (` + "`request_id`, over REST the header `Idempotency-Key`" + `):

- *no*: the failure is the outcome. The same key gets it again; a new attempt takes a new key.
- *yes*: something was away for a moment. The call may have begun: repeat it with the same key, or it may be done twice.
- *yes, not begun*: as yes, and nothing of the call has happened.

| Reason | Status | HTTP | Again | Meaning | Facts |
| --- | --- | --- | --- | --- | --- |
`

// The page lists every reason as the protocol documents it.
func TestPageIsCurrent(t *testing.T) {
	t.Parallel()
	want := head + page(t)
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(want), 0o644))
	}
	got, err := os.ReadFile(reference)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "run: go test ./pkg/rpcerr -update")
}

func page(t *testing.T) string {
	t.Helper()
	reasons := documentedReasons(t)
	comment := regexp.MustCompile(`\s*//\s?`)
	var rows strings.Builder
	values := errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED.Descriptor().Values()
	for i := range values.Len() {
		name := strings.TrimPrefix(string(values.Get(i).Name()), "ERROR_REASON_")
		d := reasons[name]
		if slices.Contains(notMade, name) {
			continue
		}
		text := strings.TrimSpace(comment.ReplaceAllString(sample.ReplaceAllString(d.text, ""), " "))
		meaning, _, _ := strings.Cut(text, " Code ")
		var status, http, facts []string
		for _, c := range d.codes {
			status = append(status, c)
			http = append(http, fmt.Sprint(runtime.HTTPStatusFromCode(codes.Code(code.Code_value[c]))))
		}
		if name == "METHOD_NOT_ALLOWED" {
			http = []string{"405"}
		}
		for _, keys := range d.samples {
			for _, key := range keys {
				if key = "`" + key + "`"; !slices.Contains(facts, key) {
					facts = append(facts, key)
				}
			}
		}
		retry, _ := proto.GetExtension(values.Get(i).Options(), optionsv1.E_Retry).(optionsv1.Retry)
		again := map[optionsv1.Retry]string{optionsv1.Retry_RETRY_TRANSIENT: "yes", optionsv1.Retry_RETRY_NOT_STARTED: "yes, not begun"}[retry]
		if again == "" {
			again = "no"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s | %s |\n", name, strings.Join(status, ", "), strings.Join(http, ", "), again,
			strings.ReplaceAll(meaning, "|", `\|`), strings.Join(facts, ", "))
	}
	return rows.String()
}
