package bedrockconverse

import (
	"maps"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// assessment is what a guardrail found: filters by category, and topics that are denied.
type assessment struct {
	Content struct {
		Filters []finding `json:"filters"`
	} `json:"contentPolicy"`
	Topics struct {
		Topics []finding `json:"topics"`
	} `json:"topicPolicy"`
}

type finding struct {
	Type       string `json:"type"`
	Name       string `json:"name"`
	Confidence string `json:"confidence"`
	Action     string `json:"action"`
	Detected   bool   `json:"detected"`
}

func (f *finding) counts() bool { return f.Action == "BLOCKED" || f.Detected }

// stopDetails are the findings of a guardrail that stopped the answer; nil if there are none.
func (a *Answer) stopDetails() *modelv1.StopDetails {
	if a.StopReason != stopFiltered && a.StopReason != stopGuarded {
		return nil
	}
	g := a.Trace.Guardrail
	var all []assessment
	for _, id := range slices.Sorted(maps.Keys(g.Input)) {
		all = append(all, g.Input[id])
	}
	for _, id := range slices.Sorted(maps.Keys(g.Outputs)) {
		all = append(all, g.Outputs[id]...)
	}
	var categories []*modelv1.StopCategory
	for i := range all {
		for _, f := range all[i].Content.Filters {
			if f.counts() {
				categories = append(categories, &modelv1.StopCategory{Category: f.Type, Level: f.Confidence})
			}
		}
		for _, f := range all[i].Topics.Topics {
			if f.counts() && f.Name != "" {
				categories = append(categories, &modelv1.StopCategory{Category: f.Name})
			}
		}
	}
	return chat.NewStopDetails(a.StopReason, "", "", categories...)
}
