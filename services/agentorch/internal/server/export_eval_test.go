package server

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// sent keeps what is sent; after failAfter messages it fails.
type sent struct {
	grpc.ServerStreamingServer[agentv1.ExportEvalResponse]

	messages  []*agentv1.ExportEvalResponse
	failAfter int
}

func (s *sent) Send(m *agentv1.ExportEvalResponse) error {
	if len(s.messages) == s.failAfter {
		return assert.AnError
	}
	s.messages = append(s.messages, m)
	return nil
}

func TestALogIsSentInChunksOfOneSize(t *testing.T) {
	t.Parallel()
	s := &sent{failAfter: 100}
	c := &chunks{stream: s, next: &agentv1.ExportEvalResponse{FileName: "log.eval", SamplesTotal: 2}}
	content := bytes.Repeat([]byte("0123456789"), chunkBytes/4)
	for part := content; len(part) > 0; {
		n, err := c.Write(part[:min(len(part), 1_000_003)])
		require.NoError(t, err)
		part = part[n:]
		c.next.SamplesDone = 1
	}
	require.NoError(t, c.flush())
	require.NoError(t, c.flush(), "nothing is left to send")
	var got []byte
	for i, m := range s.messages {
		got = append(got, m.GetChunk()...)
		assert.Equal(t, i == 0, m.GetFileName() != "")
		assert.EqualValues(t, 2, m.GetSamplesTotal())
		if i < len(s.messages)-1 {
			assert.Len(t, m.GetChunk(), chunkBytes)
			assert.Zero(t, len(m.GetChunk())%3, "pieces in base64 can be joined")
		}
	}
	assert.Equal(t, content, got)
	assert.Len(t, s.messages, 3)
}

func TestAClientThatIsGoneEndsTheExport(t *testing.T) {
	t.Parallel()
	c := &chunks{stream: &sent{failAfter: 1}, next: &agentv1.ExportEvalResponse{}}
	_, err := c.Write(make([]byte, 3*chunkBytes))
	require.ErrorIs(t, err, assert.AnError)
}
