package rpcerr_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// made has an error of every constructor, with every set of facts that it may give.
func made() []*rpcerr.Error {
	const s = time.Second
	return []*rpcerr.Error{
		rpcerr.InvalidField("spec", "m"),
		rpcerr.RequestTooLarge("", 1, "m"), rpcerr.RequestTooLarge("stdin", 1, "m"),
		rpcerr.InvalidCursor("page_token", "m"),
		rpcerr.RequestIDReused("k", "m"),
		rpcerr.ResourceNotFound("projects/p/runs/r"), rpcerr.NotFound("projects/p/runs/r", "m"),
		rpcerr.ModelNotFound("a/b", nil, "m"),
		rpcerr.ToolNotFound("t", nil),
		rpcerr.AgentNotFound("a", nil),
		rpcerr.ScorerNotFound("s", nil), rpcerr.MetricNotFound("m", nil), rpcerr.ReducerNotFound("r", nil),
		rpcerr.DriverNotFound("d", nil),
		rpcerr.EffectUnknown("k", "m"),
		rpcerr.PrefixUnknown("h", "m"),
		rpcerr.FileNotFound("/f", "m"),
		rpcerr.ResourceExists("r", "m"),
		rpcerr.EtagMismatch("m"),
		rpcerr.JournalFenced(1, "m"),
		rpcerr.NotOwner("k", 4, "m"),
		rpcerr.EffectCancelled("k", "m"),
		rpcerr.EffectIndeterminate("k", "m"),
		rpcerr.RunFinished("projects/p/runs/r", "FAILED", "m"),
		rpcerr.CallNotOpen("projects/p/runs/r", "c1", "m"),
		rpcerr.ResourceInUse("projects/p/runs/r", "m"),
		rpcerr.SandboxTerminated("s", "m"),
		rpcerr.SandboxLost("s", "gone", "m"),
		rpcerr.IsolationUnavailable("p", "m"),
		rpcerr.IsADirectory("/f", "m"),
		rpcerr.SandboxPermission("/f", "m"),
		rpcerr.InvalidPath("/f", "m"),
		rpcerr.FileTooLarge("/f", 1, "m"), rpcerr.BodyTooLarge(1, "m"), rpcerr.FolderTooLarge("/f", 1, "m"), rpcerr.DiskFull("/f", "m"),
		rpcerr.ImageUnavailable("i", "docker", "m"),
		rpcerr.SandboxSetupFailed(1, false, "m"),
		rpcerr.ProviderCredentialsRejected("p", 401, "m"),
		rpcerr.ProviderNotConfigured("p", "a", "m"),
		rpcerr.CapabilityUnsupported("c", "m"),
		rpcerr.ProviderRejected("p", 400, "m"), rpcerr.ModelRefused("p/m", "why"),
		rpcerr.ProviderRateLimited("p", 429, s, "m"), rpcerr.ProviderRateLimited("p", 0, s, "m"),
		rpcerr.ProviderUnavailable("p", 503, s, "m"), rpcerr.ProviderUnavailable("p", 0, s, "m"),
		rpcerr.ProviderResponseInvalid("p", 200, "m"), rpcerr.ProviderResponseInvalid("p", 0, "m"),
		rpcerr.ScriptExhausted("mockllm/m", "1", 1, "m"),
		rpcerr.EngineUnusable("docker", "h", "m"),
		rpcerr.EngineUnavailable("docker", "h", time.Second, "m"),
		rpcerr.ConnectionQueueFull("p/a", s, "m"),
		rpcerr.SandboxQuota("sandboxes", 1, s, "m"), rpcerr.SandboxQuota("processes", 0, s, "m"),
		rpcerr.PriceUnknown("a/b", "", "limits.cost"),
		rpcerr.NothingScored("a/b", "m"),
		rpcerr.BudgetExhausted("projects/p", s, "m"),
		rpcerr.WorkerUnavailable("tool", "n", s, "m"), rpcerr.WorkerNotConnected("tool", "n", "m"),
		rpcerr.WorkerFailed("tool", "n", "m"),
		rpcerr.WorkerRefused("w", s, "m"),
		rpcerr.BatchPending("p/m", "k", s, "m"),
		rpcerr.Unauthenticated("m"),
		rpcerr.ActionDenied("runs.create", "m"),
		rpcerr.NotBuiltYet("c"), rpcerr.NotBuiltField("f", "c"),
		rpcerr.Hidden("5f"),
		rpcerr.ServiceUnavailable("sandboxd", s, "m"),
		rpcerr.StoreUnavailable("full", s, "m"), rpcerr.BodyDamaged("9f", "m"),
		rpcerr.DeadlineExceeded("m"), rpcerr.RouteNotFound("GET", "/p"), rpcerr.MethodNotAllowed("PUT", "/p"),
	}
}

// notMade are documented for services to come.
var notMade = []string{"UNSPECIFIED", "NOT_UTF8"}

// documented is what the protocol says of a reason.
type documented struct {
	text    string
	codes   []string
	samples [][]string // the metadata keys of each, sorted
}

var (
	reasonValue = regexp.MustCompile(`((?:  //.*\n)+)  ERROR_REASON_(\w+) = \d+(?: \[.*\])?;`)
	codeName    = regexp.MustCompile(`Code(?: |\n *// )([A-Z_]+)`)
	sample      = regexp.MustCompile(`\{"reason".*\}`)
)

func documentedReasons(t *testing.T) map[string]documented {
	t.Helper()
	file, err := os.ReadFile("../../proto/evalfleet/errors/v1/error_reason.proto")
	require.NoError(t, err)
	all := map[string]documented{}
	for _, m := range reasonValue.FindAllStringSubmatch(string(file), -1) {
		d := documented{text: m[1]}
		for _, c := range codeName.FindAllStringSubmatch(m[1], -1) {
			d.codes = append(d.codes, c[1])
		}
		for _, text := range sample.FindAllString(m[1], -1) {
			var s struct {
				Reason   string            `json:"reason"`
				Metadata map[string]string `json:"metadata"`
			}
			require.NoError(t, json.Unmarshal([]byte(text), &s), text)
			require.Equal(t, m[2], s.Reason, "the sample of another reason")
			d.samples = append(d.samples, keys(s.Metadata))
		}
		all[m[2]] = d
	}
	require.Len(t, all, len(errorsv1.ErrorReason_name))
	return all
}

func keys(metadata map[string]string) []string {
	return append([]string{}, slices.Sorted(maps.Keys(metadata))...)
}

// TestEveryReasonIsMadeAsItIsDocumented holds the constructors against the protocol, both ways.
func TestEveryReasonIsMadeAsItIsDocumented(t *testing.T) {
	t.Parallel()
	reasons := documentedReasons(t)
	codes, samples := map[string][]string{}, map[string][][]string{}
	for _, e := range made() {
		reason := rpcerr.ReasonName(e.Reason)
		d := reasons[reason]
		name := code.Code(e.Code).String()
		codes[reason] = append(codes[reason], name)
		assert.Contains(t, d.codes, name, reason)
		samples[reason] = append(samples[reason], keys(e.Metadata))
		assert.Contains(t, d.samples, keys(e.Metadata), "%s has no sample with these facts", reason)

		details := map[string]bool{}
		for _, detail := range rpcerr.ToStatus(e).Details() {
			switch detail.(type) {
			case *errdetails.RetryInfo:
				details["RetryInfo"] = true
			case *errdetails.QuotaFailure:
				details["QuotaFailure"] = true
			case *errdetails.PreconditionFailure:
				details["PreconditionFailure"] = true
			case *errdetails.BadRequest:
				details["BadRequest"] = true
			case *errdetails.ResourceInfo:
				details["ResourceInfo"] = true
			}
		}
		for _, detail := range []string{"RetryInfo", "QuotaFailure", "PreconditionFailure", "BadRequest", "ResourceInfo"} {
			always := strings.Contains(d.text, detail) && name == d.codes[0] && (reason != "REQUEST_TOO_LARGE" || e.Metadata["field"] != "")
			if always {
				assert.True(t, details[detail], "%s promises %s", reason, detail)
			}
			if details[detail] && detail == "RetryInfo" {
				assert.Contains(t, d.text, detail, reason)
			}
		}
	}
	for reason, d := range reasons {
		if slices.Contains(notMade, reason) {
			assert.Empty(t, codes[reason], reason)
			continue
		}
		for _, c := range d.codes {
			assert.Contains(t, codes[reason], c, reason)
		}
		for _, s := range d.samples {
			assert.Contains(t, samples[reason], s, "%s: no constructor gives these facts", reason)
		}
	}
}

// TestEveryConstructorIsHeldAgainstTheProtocol keeps the list of this test whole.
func TestEveryConstructorIsHeldAgainstTheProtocol(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("reason.go")
	require.NoError(t, err)
	test, err := os.ReadFile("reason_test.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(`).FindAllStringSubmatch(string(source), -1) {
		switch m[1] {
		case "InvalidRequest", "Internal": // begun by InvalidField and Hidden, which add what they lack
		default:
			assert.Contains(t, string(test), "rpcerr."+m[1]+"(")
		}
	}
}
