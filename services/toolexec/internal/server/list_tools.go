package server

import (
	"context"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// ListTools lists the registered tools by name.
func (t *Tools) ListTools(_ context.Context, request *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	project, err := resource.ParseProject("parent", request.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := resource.PageOf(request)
	if err != nil {
		return nil, err
	}
	response := &toolv1.ListToolsResponse{}
	for _, definition := range t.registry.Definitions(project) {
		name := definition.GetInfo().GetName()
		if name <= page.After {
			continue
		}
		if len(response.GetTools()) == page.Size {
			response.NextPageToken = page.Token(response.GetTools()[page.Size-1].GetInfo().GetName())
			break
		}
		response.Tools = append(response.Tools, definition)
	}
	return response, nil
}

// ResolveTools returns the definitions of the referenced tools, with options and changes applied.
func (t *Tools) ResolveTools(_ context.Context, request *toolv1.ResolveToolsRequest) (*toolv1.ResolveToolsResponse, error) {
	offers, err := t.offers(request.GetParent(), request.GetTools())
	if err != nil {
		return nil, err
	}
	response := &toolv1.ResolveToolsResponse{}
	for _, offer := range offers {
		response.Tools = append(response.Tools, offer.Public)
	}
	return response, nil
}
