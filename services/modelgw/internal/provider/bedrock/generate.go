package bedrock

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// streamError is the type of errors within a stream that AWS asks to repeat.
const streamError = "ModelStreamErrorException"

// quirks interpret the errors of the API. Those that AWS's clients do not repeat are final, whatever their status: so
// the reference implementation has it.
var quirks = exchange.Quirks{
	Header: awsauth.AddType,
	Class: func(_ int, said *dialect.Error, _ provider.Class) provider.Class {
		if class, known := awsauth.ClassOf(said); known {
			return class
		}
		if said.Transient || said.Type == streamError { // within a stream
			return provider.Transient
		}
		return provider.Final
	},
	Auth: awsauth.Refuses,
}

// Generate implements provider.Provider. Streams need a right of their own: without it, the same attempt asks for the
// whole answer, unless the model's arguments ask for a stream.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	p := m.plan(r)
	response, err := m.attempt(ctx, r, p)
	if p.Stream && m.args.Streaming == nil && bedrockaccess.LacksRight(err) {
		p.Stream = false
		if response, err = m.attempt(ctx, r, p); err == nil {
			m.noStream.Store(true)
			p.warnings = append(p.warnings, bedrockaccess.NotStreamed(string(m.name)))
		}
	}
	if err != nil {
		return nil, err
	}
	m.nameIn(response.Output)
	response.Warnings = p.warnings
	return response, nil
}

// attempt makes one request.
func (m *model) attempt(ctx context.Context, r *provider.Request, p *plan) (*provider.Response, error) {
	operation := "converse"
	if p.Stream {
		operation = "converse-stream"
	}
	x, call, err := m.target(ctx, string(m.name), operation)
	if err != nil {
		return nil, err
	}
	if call.Stream = p.Stream; p.Stream {
		call.Header.Set("Accept", "application/vnd.amazon.eventstream")
	}
	response, err := x.Do(ctx, r, call, p.Append)
	if failure, ok := provider.As(err); ok && failure.Auth {
		m.access.Forget()
	}
	return response, err
}

// target returns the exchange with the account's credentials of now, and where it posts to for an operation on a model.
func (m *model) target(ctx context.Context, model, operation string) (*exchange.Exchange, *exchange.Call, error) {
	to, err := m.access.Target(ctx)
	if err != nil {
		return nil, nil, err
	}
	x := &exchange.Exchange{Codec: to.Codec(format.Codec{}), HTTP: to.HTTP, Provider: Name, Quirks: quirks}
	url := to.Endpoint + "/model/" + awsauth.Segment(model) + "/" + operation
	return x, &exchange.Call{URL: url, Header: to.Header, Model: string(m.name)}, nil
}

// nameIn names the model in an output: the format names it only where a prompt router has chosen it.
func (m *model) nameIn(output *modelv1.ModelOutput) {
	if output.GetModel() != "" {
		return
	}
	output.Model = string(m.name)
	for _, choice := range output.GetChoices() {
		choice.GetMessage().Model = string(m.name)
	}
}
