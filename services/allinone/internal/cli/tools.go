package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func (a *app) toolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tools",
		Short: "List the tools that agents can be given",
		Example: `  evalfleet tools
  evalfleet tools --json | jq '.info.parametersJson | fromjson'`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				tools, err := s.listTools(ctx)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, t := range tools {
					if a.json {
						if err := a.emit(t); err != nil {
							return err
						}
						continue
					}
					needs := "–"
					if t.GetNeedsSandbox() {
						needs = "sandbox"
					}
					first, _, _ := strings.Cut(t.GetInfo().GetDescription(), "\n")
					rows = append(rows, []string{t.GetInfo().GetName(), needs, first})
				}
				if !a.json {
					a.table([]string{"tool", "needs", "what it does"}, rows)
				}
				return nil
			})
		},
	}
}

func (s *session) listTools(ctx context.Context) ([]*toolv1.ToolDefinition, error) {
	req := &toolv1.ListToolsRequest{Parent: s.app.parent(), PageSize: 1000}
	return page(0, func(token string) ([]*toolv1.ToolDefinition, string, error) {
		req.PageToken = token
		r, err := s.tools.ListTools(ctx, req)
		return r.GetTools(), r.GetNextPageToken(), err
	})
}
