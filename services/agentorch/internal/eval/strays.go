package eval

import (
	"context"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// admitStrays admits the open runs that no admission in the journal names, since a driver ended between the two. Runs
// that an evaluation which stops has admitted are cancelled, and count. A stray without a slot is cancelled here.
func (d *loop) admitStrays(ctx context.Context) error {
	rows, err := d.engine.deps.Journals.List(ctx, journal.Query{Kind: journal.KindRun, Parent: d.head.Name, Open: true, Limit: maxSlots})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if _, admitted := d.state.byRun[row.Name]; admitted {
			continue
		}
		slot := d.slotOf(row.Request)
		if slot == nil {
			err = d.engine.deps.Runs.CancelAll(ctx, []string{row.Name}, d.cancelID(), d.stopping.change.GetReason())
		} else {
			err = d.append(ctx, nil, d.admission(slot, row.Name))
		}
		if err != nil {
			return err
		}
		d.notify() // It may have ended.
	}
	return nil
}

// slotOf returns the slot that a stray run was created for, by the key of its creation; nil if no slot waits for it.
func (d *loop) slotOf(request string) *Slot {
	for slot := range d.state.waiting() {
		if strings.HasSuffix(request, "/"+d.attempt(slot)) {
			return slot
		}
	}
	return nil
}

// admission is the event that assigns a run to a slot.
func (d *loop) admission(slot *Slot, run string) *agentv1.Event {
	return &agentv1.Event{Id: run, Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{
		Sample: d.sample(slot).GetId(), Epoch: int32(slot.Epoch), Run: run, Attempt: int32(slot.Attempts + 1),
		Model: d.state.Eval.GetSpec().GetModels()[slot.Model].GetModel(), Position: int32(slot.Sample), ModelIndex: int32(slot.Model),
	}}}
}
