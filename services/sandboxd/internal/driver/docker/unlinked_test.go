package docker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// An engine in a container names that before its own containers.
func TestWhichContainerAProcessIsOf(t *testing.T) {
	t.Parallel()
	outer, inner := strings.Repeat("a", 64), strings.Repeat("b", 64)
	known := map[string]bool{inner: true}
	assert.Equal(t, inner, containerOf("4:memory:/docker/"+inner+"\n", known))
	assert.Equal(t, inner, containerOf("4:memory:/docker/"+outer+"/docker/"+inner+"\n", known))
	assert.Equal(t, inner, containerOf("0::/system.slice/docker-"+inner+".scope\n", known))
	assert.Empty(t, containerOf("4:memory:/docker/"+outer+"\n", known))
	assert.Empty(t, containerOf("0::/\n", known))
}
