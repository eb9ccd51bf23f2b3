// Package server implements ToolService: it decodes requests, calls the registry and the executor, and encodes answers.
package server

import (
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/execute"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// Tools is ToolService. Its methods are safe for concurrent use.
type Tools struct {
	toolv1.UnimplementedToolServiceServer

	registry *tool.Registry
	executor *execute.Executor
	served   *lastvalue.Map[worker.Offered, struct{}]
}

// NewTools returns the service over a filled registry. served has the workers' tools.
func NewTools(registry *tool.Registry, executor *execute.Executor, served *lastvalue.Map[worker.Offered, struct{}]) *Tools {
	return &Tools{registry: registry, executor: executor, served: served}
}

// offers returns the tools of a request whose parent is validated.
func (t *Tools) offers(parent string, refs []*toolv1.ToolRef) (tool.Offers, error) {
	project, err := resource.ParseProject("parent", parent)
	if err != nil {
		return nil, err
	}
	return t.registry.Offer(project, refs)
}
