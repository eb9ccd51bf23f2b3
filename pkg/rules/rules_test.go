package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/rules"
)

func TestEachFieldThatBreaksARuleIsNamedWithWhatIsWanted(t *testing.T) {
	t.Parallel()
	image := func(i *contentv1.Image) *modelv1.ChatMessage {
		return &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_List{List: &contentv1.ContentList{
			Parts: []*contentv1.Content{{Part: &contentv1.Content_Image{Image: i}}},
		}}}}
	}
	at := &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "https://a.example/a.png"}}
	for name, tt := range map[string]struct {
		message proto.Message
		fields  []rpcerr.Field
	}{
		"no fault":                  {image(&contentv1.Image{Media: at}), nil},
		"a field that is missing":   {&modelv1.ChatMessage{}, []rpcerr.Field{{Path: "role", Description: "is required"}}},
		"a message that is missing": {image(&contentv1.Image{}), []rpcerr.Field{{Path: "content.list.parts[0].image.media", Description: "is required"}}},
		"none of a oneof":           {image(&contentv1.Image{Media: &contentv1.Media{}}), []rpcerr.Field{{Path: "content.list.parts[0].image.media", Description: "set one of uri, blob"}}},
		"a oneof of the message":    {&contentv1.Media{}, []rpcerr.Field{{Description: "set one of uri, blob"}}},
		"a value of no enum": {
			image(&contentv1.Image{Media: at, Detail: 9}),
			[]rpcerr.Field{{Path: "content.list.parts[0].image.detail", Description: "9 is none of auto, low, high, original"}},
		},
		"a pattern": {
			&contentv1.BlobRef{Hash: "00"}, []rpcerr.Field{{Path: "hash", Description: `is "00"; want 64 hexadecimal digits in lower case`}},
		},
	} {
		err := rules.Check(tt.message)
		if tt.fields == nil {
			require.NoError(t, err, name)
			continue
		}
		fault, ok := rpcerr.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, tt.fields, fault.Fields, name)
	}
}
