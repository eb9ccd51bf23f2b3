package engine_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// By default the content of a failed call is kept; a successful call is recorded only if all calls are.
func TestWhichCallsAreRecorded(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ all, failed bool }{"": {false, true}, "errors": {false, true}, "none": {false, false}, "all": {true, false}} {
		t.Run("record_calls "+name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				err := rpcerr.ProviderRejected("mockllm", 400, "refused")
				if r.GetRecordCall() || r.GetRecordFailedCall() {
					err = err.WithDetail(&modelv1.ModelCall{RequestJson: `{"asked":1}`, ResponseJson: `{"refused":1}`, Error: true})
				}
				return nil, err
			}
			s := spec(step("generate", ""))
			s.RecordCalls, _ = enum.Parse[agentv1.RecordCalls](name)
			run := f.Finish(f.Create(s).Name)
			request := f.Models.Requests()[0]
			assert.Equal(t, want.all, request.GetRecordCall())
			assert.Equal(t, want.failed, request.GetRecordFailedCall())
			require.Equal(t, agentv1.RunState_RUN_STATE_FAILED, run.Phase)
			var kept *modelv1.ModelCall
			for e, err := range f.Events(run.Name) {
				require.NoError(t, err)
				if o := e.GetModelOutcome(); o != nil {
					kept = o.GetContent().GetCall()
				}
			}
			assert.Equal(t, name != "none", kept != nil)
		})
	}
}
