package dialect

import (
	"strings"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Confirmation is the view of a call whose vendor wants a person to confirm its action: what the vendor says of it, for
// the approval of the call. Nil if it says nothing.
func Confirmation(reasons ...string) *toolv1.ToolCallContent {
	said := strings.TrimSpace(strings.Join(reasons, "\n"))
	if said == "" {
		return nil
	}
	return &toolv1.ToolCallContent{Title: "The model's provider asks for a confirmation", Format: toolv1.ViewFormat_VIEW_FORMAT_TEXT, Content: said}
}
