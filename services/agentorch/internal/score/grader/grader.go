// Package grader is how a scorer asks a model: the model's answer is an effect of the run, like the command of a check.
package grader

import (
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Question is the effect that a scorer asks for: a model call. Its result is an *[agentv1.ModelOutcome]; a call that
// failed has an error, which the scorer judges. The call counts in the usage of its run, and is no turn.
type Question struct {
	// Model is `provider/name`, or a role of the run; empty is the run's model.
	Model string
	// Messages are the conversation. Those without an id get one from the run, which a replayed journal gives again.
	Messages []*modelv1.ChatMessage
	// Config overrides fields of the run's configuration; nil overrides none.
	Config *modelv1.GenerateConfig
}
