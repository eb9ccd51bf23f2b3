package openaichat_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Images that a model made reach the client, whole and streamed, are read of servers that send them so, and come back
// with the conversation.
func TestImagesThatAModelMade(t *testing.T) {
	t.Parallel()
	const url = "data:image/png;base64,iVBORw0KGgo="
	m := chat.Assistant("")
	m.Content = chat.ListContent(chat.TextPart("A house."), chat.ImagePart(url))
	output := &modelv1.ModelOutput{Model: "m", Choices: []*modelv1.Choice{{Message: m, StopReason: modelv1.StopReason_STOP_REASON_STOP}}}
	const member = `"images":[{"type":"image_url","image_url":{"url":"` + url + `"}}]`
	images := func(parts []*contentv1.Content) (urls []string) {
		for _, part := range parts {
			if part.GetImage() != nil {
				urls = append(urls, part.GetImage().GetMedia().GetUri())
			}
		}
		return urls
	}

	answer, err := openaichat.Codec{}.AppendResponse(nil, output, meta)
	require.NoError(t, err)
	assert.Contains(t, string(answer), member)
	got, err := decode(string(answer))
	require.NoError(t, err)
	assert.Equal(t, []string{url}, images(chat.Parts(chat.FirstMessage(got).GetContent())))
	assert.Equal(t, "A house.", got.GetCompletion())
	assert.Equal(t, []string{url}, images(chat.Parts(again(t, answer).GetContent())))

	var wire bytes.Buffer
	w := openaichat.Codec{}.NewStreamWriter(&wire, meta)
	require.NoError(t, w.Write(&modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Text{Text: "A house."}}))
	require.NoError(t, w.Close(output))
	assert.Equal(t, 1, bytes.Count(wire.Bytes(), []byte(member)))

	s := openaichat.Codec{}.NewStreamReader()
	for _, data := range []string{
		`{"choices":[{"index":0,"delta":{"content":""}}]}`, `{"choices":[{"index":0,"delta":{` + member + `}}]}`,
		`{"choices":[{"index":0,"delta":{"images":[{"image_url":{}}]},"finish_reason":"stop"}]}`,
	} {
		_, err := s.Add(dialect.Event{Data: []byte(data)})
		require.NoError(t, err)
	}
	drawn, err := s.Response().Output(nil)
	require.NoError(t, err)
	assert.Equal(t, []string{url}, images(chat.Parts(chat.FirstMessage(drawn).GetContent())))
	assert.Len(t, chat.Parts(chat.FirstMessage(drawn).GetContent()), 1, "there is no text")

	none, err := decode(`{"choices":[{"index":0,"message":{"content":"No house.","images":[{"image_url":{}}]},"finish_reason":"stop"}]}`)
	require.NoError(t, err)
	assert.Equal(t, "No house.", chat.FirstMessage(none).GetContent().GetText(), "the text alone is no list")

	asked, err := openaichat.Codec{}.ParseRequest([]byte(`{"model":"m","modalities":["image","text"],"messages":[{"role":"user","content":"Draw."}]}`))
	require.NoError(t, err)
	assert.Equal(t, "image", asked.Config.GetModalities().GetValues()[0].GetType())

	_, err = openaichat.Codec{}.ParseRequest([]byte(`{"model":"m","messages":[{"role":"assistant","images":[{"image_url":{"url":"nowhere"}}]}]}`))
	require.ErrorContains(t, err, "messages[0].images[0].image_url.url")
}
