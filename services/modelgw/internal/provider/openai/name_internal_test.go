package openai

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

var (
	oSeries   = regexp.MustCompile(`(?:^|[/:-])o\d`)
	gptNumber = regexp.MustCompile(`gpt-(\d+)(?:\.(\d+))?`)
)

// Names are looked at several times a call, and so without regular expressions, which they must agree with.
func FuzzName(f *testing.F) {
	for _, name := range []string{"o1", "o3-mini", "gpt-4o", "gpt-5.6", "gpt-5.", "gpt-x-gpt-4.1-mini", "azure/o4-mini", "foo1", "ft:gpt-4o-mini:org", "gpt-gpt-3.5", "o", "-o1", "proto3", "gpt-99999999999999999999", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := name{id: text}
		assert.Equal(t, oSeries.MatchString(text), n.isOSeries())
		var wantMajor, wantMinor int
		if match := gptNumber.FindStringSubmatch(text); match != nil {
			wantMajor, _ = strconv.Atoi(match[1])
			wantMinor, _ = strconv.Atoi(match[2])
		}
		major, minor := n.version()
		assert.Equal(t, wantMajor, major)
		assert.Equal(t, wantMinor, minor)
	})
}
