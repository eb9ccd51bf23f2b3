package server

import (
	"context"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// MCP is McpService, which is declared and not built yet: every method fails with UNIMPLEMENTED and NOT_BUILT_YET.
type MCP struct {
	toolv1.UnimplementedMcpServiceServer
}

const mcpServers = "connections to MCP servers"

// CreateMcpServer is not built yet.
func (MCP) CreateMcpServer(context.Context, *toolv1.CreateMcpServerRequest) (*toolv1.McpServer, error) {
	return nil, rpcerr.NotBuiltYet(mcpServers)
}

// GetMcpServer is not built yet.
func (MCP) GetMcpServer(context.Context, *toolv1.GetMcpServerRequest) (*toolv1.McpServer, error) {
	return nil, rpcerr.NotBuiltYet(mcpServers)
}

// ListMcpServers is not built yet.
func (MCP) ListMcpServers(context.Context, *toolv1.ListMcpServersRequest) (*toolv1.ListMcpServersResponse, error) {
	return nil, rpcerr.NotBuiltYet(mcpServers)
}

// DeleteMcpServer is not built yet.
func (MCP) DeleteMcpServer(context.Context, *toolv1.DeleteMcpServerRequest) (*toolv1.DeleteMcpServerResponse, error) {
	return nil, rpcerr.NotBuiltYet(mcpServers)
}

// ListMcpTools is not built yet.
func (MCP) ListMcpTools(context.Context, *toolv1.ListMcpToolsRequest) (*toolv1.ListMcpToolsResponse, error) {
	return nil, rpcerr.NotBuiltYet(mcpServers)
}
