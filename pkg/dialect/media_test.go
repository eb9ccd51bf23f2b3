package dialect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// OpenAI knows the kind of a file by the end of its name alone; titles of Anthropic's documents have none.
func TestAFileHasANameThatSaysItsKind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ uri, mediaType, name, want string }{
		{"data:application/pdf;base64,eA==", "", "", "document.pdf"},
		{"data:application/pdf;base64,eA==", "", "The plan", "The plan.pdf"},
		{"data:application/pdf;base64,eA==", "", "Plan v1.2", "Plan v1.2.pdf"},
		{"data:application/pdf;base64,eA==", "", "plan.PDF", "plan.PDF"},
		{"data:text/plain;base64,eA==", "", "", "document.txt"},
		{"data:application/vnd.openxmlformats-officedocument.wordprocessingml.document;base64,eA==", "", "", "document.docx"},
		{"data:application/octet-stream;base64,eA==", "", "x", "x"},
		{"https://a.example/x", "text/csv", "", "document.csv"},
	} {
		document := chat.DocumentPart(test.uri, test.mediaType, test.name).GetDocument()
		assert.Equal(t, test.want, dialect.FileName(document), "%v", test)
	}
}
