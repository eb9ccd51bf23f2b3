package engine_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/chat"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/multichoice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/prompt"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/exec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type callOption = grpc.CallOption

// fleet is a fleettest.Fleet with all agents and scorers.
type fleet struct{ *fleettest.Fleet }

func newFleet(t testing.TB, extra ...agent.Definition) *fleet {
	t.Helper()
	return newFleetOn(t, "", "", extra...)
}

// newFleetOn makes a fleet whose database lies in a folder of a disk; empty are those of other tests.
func newFleetOn(t testing.TB, vfs, dir string, extra ...agent.Definition) *fleet {
	t.Helper()
	return &fleet{fleettest.New(t, fleettest.Parts{
		VFS: vfs, Dir: dir,
		Open: func(ctx context.Context, db *sqlite.DB) (journal.Store, error) {
			return journalsqlite.Open(ctx, db, run.FoldRow)
		},
		Agents:  append(append(prompt.Definitions(), generate.Definition(), multichoice.Definition(), react.Definition()), extra...),
		Scorers: append(builtin.Definitions(), exec.Definition()),
	})}
}

func (f *fleet) start() *fleet {
	f.T.Helper()
	f.Start()
	return f
}

var (
	spec  = fleettest.Spec
	step  = fleettest.Step
	user  = fleettest.User
	texts = fleettest.Texts
)

func call(id, function, arguments string) *toolv1.ToolCall { return chat.Call(id, function, arguments) }
