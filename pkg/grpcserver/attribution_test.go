package grpcserver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A call is counted in its own project: one tenant cannot spend another's budget.
func TestACallIsOnBehalfOfItsOwnProject(t *testing.T) {
	t.Parallel()
	own := &effectv1.Attribution{Eval: "projects/p/evals/e", Run: "projects/p/runs/r"}
	for name, tt := range map[string]struct {
		request proto.Message
		field   string
	}{
		"its own":             {&modelv1.GenerateRequest{Parent: "projects/p", Attribution: own}, ""},
		"nothing":             {&modelv1.GenerateRequest{Parent: "projects/p"}, ""},
		"an exec of its own":  {&sandboxv1.ExecRequest{Sandbox: "projects/p/sandboxes/s", Attribution: own}, ""},
		"another's eval":      {&modelv1.GenerateRequest{Parent: "projects/q", Attribution: own}, "attribution.eval"},
		"another's run":       {&toolv1.ExecuteToolsRequest{Parent: "projects/p", Attribution: &effectv1.Attribution{Run: "projects/q/runs/r"}}, "attribution.run"},
		"an exec of another":  {&sandboxv1.ExecRequest{Sandbox: "projects/p2/sandboxes/s", Attribution: own}, "attribution.eval"},
		"a stream of another": {&modelv1.StreamGenerateRequest{Request: &modelv1.GenerateRequest{Parent: "projects/q", Attribution: own}}, "request.attribution.eval"},
		"a project":           {&modelv1.GenerateRequest{Parent: "projects/p", Attribution: &effectv1.Attribution{Eval: "projects/q"}}, "attribution.eval"},
	} {
		err := checkAttribution(tt.request)
		if tt.field == "" {
			require.NoError(t, err, name)
			continue
		}
		e, _ := rpcerr.As(err)
		require.NotNil(t, e, name)
		assert.Equal(t, tt.field, e.Fields[0].Path, name)
	}
}
