package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
)

// Offer is a tool as a run offers it to its model. It is safe for concurrent use.
type Offer struct {
	// Public is the tool's definition, with the run's changes. Do not modify it.
	Public *toolv1.ToolDefinition

	tool        Tool // nil for a tool that the caller runs
	view        func(json.RawMessage) *toolv1.ToolCallContent
	verbatim    bool
	environment string
	parameters  *parameters
}

// Offers are the tools of a run. If several have one name, the first is called.
type Offers []*Offer

// Find returns the offer with the name that the model calls, or nil.
func (o Offers) Find(name string) *Offer {
	for _, offer := range o {
		if offer.Name() == name {
			return offer
		}
	}
	return nil
}

// Names returns the names that the model may call, in order.
func (o Offers) Names() []string {
	names := make([]string, len(o))
	for i, offer := range o {
		names[i] = offer.Name()
	}
	return names
}

// Name is the name that the model calls.
func (o *Offer) Name() string { return o.Public.GetInfo().GetName() }

// FirstParameter is the parameter that bare text is bound to; "" if there is none.
func (o *Offer) FirstParameter() string { return o.parameters.first() }

// View shows a call to a person, from arguments that may be invalid; nil if the tool has no view of its own.
func (o *Offer) View(arguments json.RawMessage) *toolv1.ToolCallContent {
	if o.view == nil {
		return nil
	}
	return o.view(arguments)
}

// Environment returns the name of the sandbox environment of a tool: the named one, else the one that the run set for
// the tool, else `default`.
func (o *Offer) Environment(named string) string {
	switch {
	case named != "":
		return named
	case o.environment != "":
		return o.environment
	default:
		return "default"
	}
}

// Call runs the tool. It must not be a tool that the caller runs.
func (o *Offer) Call(ctx context.Context, call *Call) (*Result, error) {
	return o.tool.Call(ctx, call)
}

// Check returns arguments in the tool's form, or the model's view of their faults: all violations of the schema
// together, or else the first text that is not the date or time that it should be.
func (o *Offer) Check(arguments json.RawMessage) (json.RawMessage, *Error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	violations, err := o.parameters.schema.Check(arguments)
	switch {
	case errors.Is(err, jsonschema.ErrTooDeep):
		return nil, Parsingf("the arguments of %s are %v", o.Name(), err)
	case err != nil:
		return nil, Parsingf("the arguments of %s cannot be read: %v", o.Name(), err)
	case len(violations) > 0:
		return nil, o.breaches(violations)
	case o.verbatim:
		return arguments, nil
	}
	value, err := orderedjson.Decode(arguments)
	if err != nil {
		return nil, Parsingf("the arguments of %s cannot be read: %v", o.Name(), err)
	}
	coerced, err := coerce(o.parameters.object, value, nil)
	if e, ok := errors.AsType[*Error](err); ok {
		return nil, e
	}
	before, after := orderedjson.Append(nil, value), orderedjson.Append(nil, coerced)
	if bytes.Equal(before, after) {
		return arguments, nil
	}
	return after, nil
}

func (o *Offer) breaches(violations []jsonschema.Violation) *Error {
	lines := make([]string, len(violations))
	for i, violation := range violations {
		lines[i] = "\n- " + violation.String()
	}
	places := "1 place"
	if len(violations) != 1 {
		places = fmt.Sprintf("%d places", len(violations))
	}
	return Parsingf("the arguments of %s break its schema in %s:%s", o.Name(), places, strings.Join(lines, ""))
}
