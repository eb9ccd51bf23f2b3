package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

var states = map[lifecycle.State]sandboxv1.SandboxState{
	lifecycle.Creating: sandboxv1.SandboxState_SANDBOX_STATE_CREATING,
	lifecycle.Ready:    sandboxv1.SandboxState_SANDBOX_STATE_READY,
	lifecycle.Paused:   sandboxv1.SandboxState_SANDBOX_STATE_PAUSED,
	lifecycle.Deleting: sandboxv1.SandboxState_SANDBOX_STATE_DELETING,
	lifecycle.Deleted:  sandboxv1.SandboxState_SANDBOX_STATE_DELETED,
	lifecycle.Lost:     sandboxv1.SandboxState_SANDBOX_STATE_LOST,
	lifecycle.Failed:   sandboxv1.SandboxState_SANDBOX_STATE_FAILED,
}

// toProto writes a record as the resource that clients see.
func toProto(b *lifecycle.Sandbox) *sandboxv1.Sandbox {
	spec := b.Spec
	if b.Report.User != "" {
		spec.User = b.Report.User
	}
	if b.Report.Workdir != "" {
		spec.Workdir = b.Report.Workdir
	}
	return &sandboxv1.Sandbox{
		Name: b.Name(), Spec: spec, State: states[b.State], StateReason: b.Reason, CreateTime: timestamppb.New(b.Created),
		LeaseExpireTime: timestamppb.New(b.LeaseEnd), Isolation: isolation(b.Report.Isolation), GuestPath: b.Report.GuestPath,
		Workdir: b.Report.Workdir, Timing: b.Timing,
	}
}

func isolation(i driver.Isolation) *sandboxv1.Isolation {
	return &sandboxv1.Isolation{Parts: i.Parts, Weaker: i.Weaker, Unisolated: i.Unisolated}
}

// writePosition and readPosition are the place of a sandbox in a list by age.
func writePosition(b *lifecycle.Sandbox) string {
	return fmt.Sprintf("%d %s", b.Created.UnixNano(), b.ID)
}

func readPosition(position string) (*lifecycle.Sandbox, error) {
	if position == "" {
		return &lifecycle.Sandbox{}, nil
	}
	at, id, ok := strings.Cut(position, " ")
	nanos, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil {
		return nil, resource.Unreadable("page_token")
	}
	return &lifecycle.Sandbox{Created: time.Unix(0, nanos), ID: id}, nil
}
