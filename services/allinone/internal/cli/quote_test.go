package cli

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command that is printed can be pasted into a shell, whatever its values hold.
func TestAShellReadsAQuotedTextAsItIs(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIP: no bash, which reads the quoted texts")
	}
	for _, text := range []string{"", "plain", "it's", "$HOME `x` \\", "a\nb", "\x1b[31m7", "é\t'1'", "not \xff UTF-8"} {
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf %s "+shellQuote(text)).Output()
		require.NoError(t, err, "%q", text)
		assert.Equal(t, text, string(out))
	}
	a := &app{Process: Process{Name: "/opt/my tools/evalfleet"}, project: "default"}
	assert.Equal(t, "'/opt/my tools/evalfleet' serve", a.next("serve"))
}
