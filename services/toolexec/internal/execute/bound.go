package execute

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

const (
	// defaultTextBytes bounds the text of a result if neither the tool nor the caller sets a bound.
	defaultTextBytes = 16 << 10
	// maxResultBytes bounds a result without another bound, so that it fits into a message.
	maxResultBytes = 2 << 20
)

// textBound returns the bound of a tool's text in bytes: the tool's own, else the caller's, else the default. A bound
// of 0 or less means maxResultBytes.
func textBound(own, callers *int64) int64 {
	bound := int64(defaultTextBytes)
	switch {
	case own != nil:
		bound = *own
	case callers != nil:
		bound = *callers
	}
	if bound <= 0 || bound > maxResultBytes {
		return maxResultBytes
	}
	return bound
}

// bounded cuts the middle out of a text over its bound, and adds a notice around the rest. omitted is the number of
// bytes that were left out before; if it is not 0, the text is shown as cut, even if it is short. A list of parts over
// maxResultBytes is an error: half an image is of no use.
func bounded(function string, content *contentv1.MessageContent, omitted, bound int64) (*contentv1.MessageContent, *toolv1.Truncation, *tool.Error) {
	if content.GetList() != nil {
		if size := proto.Size(content); size > maxResultBytes {
			return nil, nil, tool.OverOutputLimit(maxResultBytes, "")
		}
		return content, nil, nil
	}
	text := strings.ToValidUTF8(content.GetText(), "\uFFFD") // a message's string must be valid UTF-8
	if int64(len(text)) <= bound && omitted == 0 {
		return tool.Text(text).Content, nil, nil
	}
	cut := &toolv1.Truncation{RawBytes: int64(len(text)) + omitted, LimitBytes: bound}
	shown := fmt.Sprintf("\nThe output of the call to %s was too long to show all of it.\nThis is its beginning and its end, with the middle left out:\n<START_TOOL_OUTPUT>\n%s\n<END_TOOL_OUTPUT>\n",
		function, headtail.Cut(text, int(bound)))
	return tool.Text(shown).Content, cut, nil
}
