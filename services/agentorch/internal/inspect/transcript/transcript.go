package transcript

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// solvers are the steps whose spans are of type solver; all others are agents.
var solvers = map[string]bool{
	"generate": true, "system_message": true, "user_message": true, "assistant_message": true, "prompt_template": true, "multiple_choice": true,
	"chain_of_thought": true, "self_critique": true, "use_tools": true, "basic_agent": true,
}

// Builder makes a transcript event by event. It belongs to one goroutine.
type Builder struct {
	events []*Event
	open   map[int64]*Event // by the number of the intent

	conversation agent.Conversation
	tools        []*toolv1.ToolDefinition
	spec         *agentv1.RunSpec
	stored       map[string]bool
	reviewed     map[string]*toolv1.ToolReview
	asked        map[string]string // by call: the model's text when approval was requested
	spans        []string          // open spans, outermost first
	init         string            // span before the first step
	solvers      string            // span of all steps
	step         string            // span in which the present step does its work
	solver       string            // span of the present step as a solver, which is step itself unless that is an agent's
	scorers      string            // span of the scorers
	// children are the agents that others began, by span.
	children map[string]*child
	// told is the conversation as the state events have recorded it.
	told []*modelv1.ChatMessage
	// name names the run, and stepLine the present step, in the words of a traceback.
	name, stepLine string
	// effects are the purposes of open intents; fault is the effect that failed last.
	effects map[int64]string
	fault   fault
	// bound is the type of the bound that ended the run.
	bound agentv1.LimitType
	// cutBy is the source of the last interrupt of calls.
	cutBy string
}

// child is an agent that another agent started.
type child struct {
	conversation agent.Conversation
	tools        []*toolv1.ToolDefinition // that are not the run's
}

// NewBuilder returns a builder of an empty transcript.
func NewBuilder() *Builder {
	return &Builder{open: map[int64]*Event{}, children: map[string]*child{}, stored: map[string]bool{}, reviewed: map[string]*toolv1.ToolReview{}, asked: map[string]string{}, effects: map[int64]string{}}
}

// Events returns the transcript so far.
func (b *Builder) Events() []*Event { return b.events }

// add appends an event at the place of a journal's event.
func (b *Builder) add(e *agentv1.Event, kind string) *Event {
	t := &Event{
		Event: kind, UUID: fmt.Sprintf("%s.%d", resource.LastID(e.GetJournal()), e.GetSeq()), SpanID: b.span(e), Timestamp: e.GetTime().AsTime(), WorkingStart: e.GetWorkingStart().AsDuration().Seconds(),
	}
	b.events = append(b.events, t)
	return t
}

// span is the span of an event.
func (b *Builder) span(e *agentv1.Event) string {
	switch {
	case e.GetSpan() != "":
		return agentSpan(e, e.GetSpan())
	case b.scorers != "":
		return b.scorers
	case b.step != "":
		return b.step
	case b.solvers != "":
		return b.solvers
	}
	return b.init
}

// agentSpan is the span of an agent that another began.
func agentSpan(e *agentv1.Event, id string) string {
	return fmt.Sprintf("%s.agent.%s", resource.LastID(e.GetJournal()), id)
}

// begin opens a span and returns its id.
func (b *Builder) begin(e *agentv1.Event, kind, name, parent string) string {
	return b.beginAs(e, fmt.Sprintf("%s.%s.%d", resource.LastID(e.GetJournal()), kind, e.GetSeq()), kind, name, parent)
}

func (b *Builder) beginAs(e *agentv1.Event, id, kind, name, parent string) string {
	t := b.add(e, "span_begin")
	t.UUID = id + ".begin" // A log event and its spans come from one event of the journal.
	t.ID, t.SpanID, t.Type, t.Name, t.ParentID = id, id, kind, name, parent
	b.spans = append(b.spans, id)
	return id
}

// end closes a span, unless it is closed.
func (b *Builder) end(e *agentv1.Event, id string) {
	at := slices.Index(b.spans, id)
	if at < 0 {
		return
	}
	b.spans = slices.Delete(b.spans, at, at+1)
	t := b.add(e, "span_end")
	t.UUID = id + ".end"
	t.ID, t.SpanID = id, id
}

// Add reads the next event. It keeps parts of it.
func (b *Builder) Add(e *agentv1.Event) error {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_RunCreated:
		b.created(e, k.RunCreated)
	case *agentv1.Event_StepBegan:
		b.closeInit(e)
		b.conversation.ResetInput()
		if b.solvers == "" {
			b.solvers = b.begin(e, "solvers", "solvers", "")
		}
		b.stepLine = fmt.Sprintf("step %d, %s", k.StepBegan.GetIndex()+1, k.StepBegan.GetName())
		b.solver = b.begin(e, "solver", k.StepBegan.GetName(), b.solvers)
		b.step = b.solver
		if at := int(k.StepBegan.GetIndex()); at >= len(b.spec.GetSteps()) || !solvers[b.spec.GetSteps()[at].GetName()] {
			b.step = b.begin(e, "agent", k.StepBegan.GetName(), b.solver)
		}
	case *agentv1.Event_StepEnded:
		b.closeStep(e)
	case *agentv1.Event_RunStateChanged:
		if k.RunStateChanged.GetState() == agentv1.RunState_RUN_STATE_SCORING && b.scorers == "" {
			b.closeSolvers(e)
			b.scorers = b.begin(e, "scorers", "scorers", "")
		}
	case *agentv1.Event_RunFinished:
		b.closeSolvers(e)
		for len(b.spans) > 0 {
			b.end(e, b.spans[len(b.spans)-1])
		}
		b.scorers = ""
	case *agentv1.Event_MessageAdded, *agentv1.Event_HistoryChanged, *agentv1.Event_InputAdded:
		b.conversationOf(e).Apply(e)
	case *agentv1.Event_Compacted:
		b.conversationOf(e).Apply(e)
		b.compacted(e, k.Compacted)
	case *agentv1.Event_AgentBegan:
		b.children[e.GetId()] = &child{agent.NewConversation(k.AgentBegan.GetContent().GetMessages()), k.AgentBegan.GetContent().GetTools()}
		b.beginAs(e, agentSpan(e, e.GetId()), "agent", k.AgentBegan.GetName(), b.span(e))
	case *agentv1.Event_AgentEnded:
		delete(b.children, e.GetId())
		b.end(e, agentSpan(e, e.GetId()))
	case *agentv1.Event_StoreChanged:
		b.store(e, k.StoreChanged.GetContent().GetChanges())
	default:
		return b.addEffect(e)
	}
	return nil
}

// conversationOf is the conversation that an event belongs to.
func (b *Builder) conversationOf(e *agentv1.Event) *agent.Conversation {
	if c := b.children[e.GetSpan()]; c != nil {
		return &c.conversation
	}
	return &b.conversation
}

// toolsOf is the definitions among which an agent's tools are, its own first.
func (b *Builder) toolsOf(e *agentv1.Event) []*toolv1.ToolDefinition {
	if c := b.children[e.GetSpan()]; c != nil {
		return slices.Concat(c.tools, b.tools)
	}
	return b.tools
}

func (b *Builder) closeInit(e *agentv1.Event) {
	b.end(e, b.init)
	b.init = ""
}

func (b *Builder) closeStep(e *agentv1.Event) {
	if b.step != "" {
		if b.step != b.solver {
			b.end(e, b.step)
			b.step = b.solver
		}
		b.tell(e)
		b.end(e, b.solver)
		b.step, b.stepLine = "", ""
	}
}

func (b *Builder) closeSolvers(e *agentv1.Event) {
	b.closeInit(e)
	b.closeStep(e)
	b.end(e, b.solvers)
	b.solvers = ""
}

// tell emits a state event with the changes of the conversation since the last one.
func (b *Builder) tell(e *agentv1.Event) {
	messages := b.conversation.Messages()
	grown := len(messages) >= len(b.told) && slices.Equal(messages[:len(b.told)], b.told)
	if grown && len(messages) == len(b.told) {
		return
	}
	t := b.add(e, "state")
	t.UUID += ".state"
	if grown {
		for i, m := range messages[len(b.told):] {
			t.Changes = append(t.Changes, Change{Op: "add", Path: fmt.Sprintf("/messages/%d", len(b.told)+i), Value: chat.MessageJSON(m)})
		}
	} else {
		t.Changes = []Change{{Op: "replace", Path: "/messages", Value: chat.MessagesJSON(messages)}}
	}
	b.told = slices.Clone(messages)
}

func (b *Builder) created(e *agentv1.Event, c *agentv1.RunCreated) {
	b.spec, b.tools = run.Join(c), c.GetTools()
	b.name = runLine(e.GetJournal(), b.spec)
	b.conversation = agent.NewConversation(b.spec.GetInput())
	b.told = slices.Clone(b.spec.GetInput())
	for key := range b.spec.GetStore() {
		b.stored[key] = true
	}
	b.init = b.begin(e, "init", "init", "")
	t := b.add(e, "sample_init")
	t.Sample, t.State = sampleJSON(b.spec), stateJSON(b.spec.GetInput(), b.spec)
}

// store emits the changes of the run's store.
func (b *Builder) store(e *agentv1.Event, changes []*toolv1.StoreChange) {
	if len(changes) == 0 {
		return
	}
	t := b.add(e, "store")
	t.UUID += ".store"
	for _, c := range changes {
		change := Change{Path: "/" + pointer(c.GetKey())}
		switch {
		case c.ValueJson == nil:
			change.Op = "remove"
			delete(b.stored, c.GetKey())
		case b.stored[c.GetKey()]:
			change.Op, change.Value = "replace", rawJSON(c.GetValueJson())
		default:
			change.Op, change.Value = "add", rawJSON(c.GetValueJson())
			b.stored[c.GetKey()] = true
		}
		t.Changes = append(t.Changes, change)
	}
}

// Used sets the run's present usage on the last score.
func (b *Builder) Used(models, roles map[string]*modelv1.ModelUsage) {
	for _, t := range slices.Backward(b.events) {
		if t.Event == "score" {
			t.ModelUsage, t.RoleUsage = maps.Clone(models), maps.Clone(roles)
			return
		}
	}
}

// finish completes a pending event. It returns nil if the effect never began.
func (b *Builder) finish(e *agentv1.Event, intent int64, working time.Duration) *Event {
	t := b.open[intent]
	if t == nil {
		return nil
	}
	delete(b.open, intent)
	ended, seconds := e.GetTime().AsTime(), working.Seconds()
	t.Pending, t.Completed, t.WorkingTime = false, &ended, &seconds
	return t
}
