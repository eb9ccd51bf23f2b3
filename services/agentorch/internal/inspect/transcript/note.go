package transcript

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/compaction"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// addNote reads events that are complete by themselves. Kinds that a transcript does not show are ignored.
func (b *Builder) addNote(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_LimitHit:
		reached := k.LimitHit.GetLimit()
		t := b.add(e, "sample_limit")
		t.Type, t.Message, t.Limit = enum.Word(reached.GetType()), jsonwrite.Marshal(reached.GetMessage()), new(reached.GetLimit())
		if k.LimitHit.GetEndsRun() {
			b.cut(e, reached.GetType())
		}
	case *agentv1.Event_Info:
		t := b.add(e, "info")
		t.Source, t.Data = k.Info.GetSource(), rawJSON(k.Info.GetContent().GetDataJson())
	case *agentv1.Event_LogLine:
		t := b.add(e, "logger")
		t.Message = jsonwrite.Marshal(map[string]any{
			"name": k.LogLine.GetLogger(), "level": enum.Word(k.LogLine.GetLevel()), "message": k.LogLine.GetContent().GetMessage(), "created": e.GetTime().AsTime().UnixMilli(),
		})
	case *agentv1.Event_ErrorRaised:
		t := b.add(e, "error")
		trace := b.Traceback(k.ErrorRaised.GetError())
		t.Error = jsonwrite.Marshal(map[string]string{"message": k.ErrorRaised.GetError().GetMessage(), "traceback": trace, "traceback_ansi": trace})
	case *agentv1.Event_SpanBegan:
		b.beginAs(e, e.GetId(), k.SpanBegan.GetType(), k.SpanBegan.GetName(), k.SpanBegan.GetParent())
	case *agentv1.Event_SpanEnded:
		b.end(e, e.GetId())
	case *agentv1.Event_Branched:
		b.add(e, "branch").FromAnchor = k.Branched.GetFromAnchor()
	case *agentv1.Event_Anchored:
		t := b.add(e, "anchor")
		t.AnchorID, t.Source = k.Anchored.GetAnchor(), k.Anchored.GetSource()
	case *agentv1.Event_ApprovalRequested:
		b.asked[k.ApprovalRequested.GetCallId()] = k.ApprovalRequested.GetContent().GetMessage()
	case *agentv1.Event_ApprovalDecided:
		t := b.add(e, "approval")
		t.Message = jsonwrite.Marshal(b.asked[k.ApprovalDecided.GetCallId()])
		t.Approver, t.Decision, t.Explanation = k.ApprovalDecided.GetApprover(), enum.Word(k.ApprovalDecided.GetDecision()), k.ApprovalDecided.GetContent().GetExplanation()
		t.Call = callJSON(b.reviewed[k.ApprovalDecided.GetCallId()].GetCall())
		t.Modified = callJSON(k.ApprovalDecided.GetContent().GetModified())
	case *agentv1.Event_Interrupted:
		if b.cutBy = enum.Word(k.Interrupted.GetSource()); k.Interrupted.GetOutside() {
			return // The agent's own turn continues.
		}
		t := b.add(e, "interrupt")
		t.Source, t.Interrupted, t.CallID = enum.Word(k.Interrupted.GetSource()), enum.Word(k.Interrupted.GetInterrupted()), k.Interrupted.GetCallId()
	case *agentv1.Event_SubtaskIntent:
		t := b.add(e, "subtask")
		t.Name, t.Type, t.Input, t.Pending = k.SubtaskIntent.GetName(), k.SubtaskIntent.GetType(), rawJSON(k.SubtaskIntent.GetContent().GetDataJson()), true
		b.open[e.GetSeq()] = t
	case *agentv1.Event_SubtaskOutcome:
		if t := b.finish(e, k.SubtaskOutcome.GetIntent(), working(k.SubtaskOutcome.GetTiming())); t != nil {
			t.Result = rawJSON(k.SubtaskOutcome.GetContent().GetDataJson())
		}
	case *agentv1.Event_InputRequested:
		t := b.add(e, "input")
		t.Input, t.Pending = rawJSON(k.InputRequested.GetContent().GetDataJson()), true
		b.open[e.GetSeq()] = t
	case *agentv1.Event_InputAnswered:
		if t := b.finish(e, k.InputAnswered.GetIntent(), 0); t != nil {
			t.Decision, t.Data = enum.Word(k.InputAnswered.GetOutcome()), rawJSON(k.InputAnswered.GetContent().GetDataJson())
		}
	}
}

// compacted adds a compaction.
func (b *Builder) compacted(e *agentv1.Event, c *agentv1.Compacted) {
	t := b.add(e, "compaction")
	t.Type, t.TokensBefore, t.TokensAfter = enum.Word(c.GetType()), c.GetTokensBefore(), c.GetTokensAfter()
	t.Source, t.Metadata = compactor, compactionJSON(c.GetMetadataJson())
}

// compactor is the source of compactions in logs.
const compactor = "evalfleet"

// strategyNames are the names that Inspect's viewer knows for strategies of compaction.
var strategyNames = map[compaction.Strategy]string{
	compaction.Auto: "CompactionAuto", compaction.Edit: "CompactionEdit", compaction.Native: "CompactionNative",
	compaction.Summary: "CompactionSummary", compaction.Trim: "CompactionTrim",
}

// compactionJSON writes what is known of a compaction as in Inspect's logs.
func compactionJSON(metadata string) json.RawMessage {
	var m compaction.Metadata
	if json.Unmarshal([]byte(metadata), &m) != nil {
		return nil
	}
	named := func(s compaction.Strategy) compaction.Strategy { return compaction.Strategy(strategyNames[s]) }
	m.Strategy, m.Applied = named(m.Strategy), named(m.Applied)
	for i, pass := range m.Passes {
		m.Passes[i] = named(pass)
	}
	return json.RawMessage(m.String())
}

// cutTexts are the errors of model calls, by the source of the interrupt.
var cutTexts = map[string]string{"user_cancel": "Cancelled by operator", "limit": "Cancelled by limit", "system": "Cancelled by system"}

// cut records what a limit did to open calls: a limit of working time interrupts them, a limit of wall time ends them
// with the run.
func (b *Builder) cut(e *agentv1.Event, bound agentv1.LimitType) {
	b.bound = bound
	if bound != limit.Working {
		return
	}
	for _, intent := range slices.Sorted(maps.Keys(b.open)) {
		open := b.open[intent]
		if open.Event != "tool" {
			continue
		}
		t := b.add(e, "interrupt")
		t.UUID += fmt.Sprintf(".interrupt.%d", intent)
		t.SpanID, t.Source, t.Interrupted, t.CallID = open.SpanID, "limit", "tool_call", open.ID
	}
}
