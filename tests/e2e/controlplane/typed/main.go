// client-go's typed clients of resource.k8s.io/v1, which speak protobuf alone, at every verb: one JSON line for each call, with what came
// back and in which media types it travelled. What no two servers have in common (uids, versions, the time) is left out.
//
//	typed -kubeconfig FILE -namespace NAME -prefix NAME
//
// Lines: {"call":"create class","media":["POST protobuf > protobuf 201"],"object":{…}} {"call":"get nothing","media":[…],"status":{…}}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const protobuf = "application/vnd.kubernetes.protobuf"

type line struct {
	Call   string         `json:"call"`
	Media  []string       `json:"media"`
	Object any            `json:"object,omitempty"`
	Status *metav1.Status `json:"status,omitempty"`
	Events []event        `json:"events,omitempty"`
}

type event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// recorder keeps in which media types requests and answers travel.
type recorder struct {
	next  http.RoundTripper
	mutex sync.Mutex
	media []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	said := request.Method + " " + short(request.Header.Get("Content-Type")) + " > " + short(response.Header.Get("Content-Type")) + " " + response.Status[:3]
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.media = append(r.media, said)
	return response, nil
}

func (r *recorder) taken() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	media := append([]string{}, r.media...)
	r.media = nil
	return media
}

func short(media string) string {
	return strings.ReplaceAll(media, protobuf, "protobuf")
}

// program makes calls and tells of them.
type program struct {
	*recorder
	ctx  context.Context
	out  *json.Encoder
	hide []string
}

// call tells what came of it: an object, a list, or an error with its Status.
func (p *program) call(name string, object runtime.Object, err error) {
	l := line{Call: name, Media: p.taken()}
	if err != nil {
		l.Status = p.status(err)
	} else if object != nil {
		l.Object = shown(object)
	}
	p.tell(l)
}

func (p *program) status(err error) *metav1.Status {
	var told apierrors.APIStatus
	if !errors.As(err, &told) {
		log.Fatal(err)
	}
	status := told.Status()
	for _, uid := range p.hide {
		status.Message = strings.ReplaceAll(status.Message, uid, "<uid>")
	}
	return &status
}

func (p *program) tell(l line) {
	if err := p.out.Encode(l); err != nil {
		log.Fatal(err)
	}
}

// watch tells of events until one of the type comes.
func (p *program) watch(name string, watching watch.Interface, err error, until watch.EventType) {
	if err != nil {
		log.Fatal(err)
	}
	defer watching.Stop()
	l := line{Call: name}
	for seen := range watching.ResultChan() {
		l.Events = append(l.Events, event{seen.Type, shown(seen.Object)})
		if seen.Type == until {
			break
		}
	}
	l.Media = p.taken()
	p.tell(l)
}

func shown(object runtime.Object) any {
	object = object.DeepCopyObject()
	if meta.IsListType(object) {
		list, err := meta.ListAccessor(object)
		if err != nil {
			log.Fatal(err)
		}
		items, err := meta.ExtractList(object)
		if err != nil {
			log.Fatal(err)
		}
		made := []any{}
		for _, item := range items {
			made = append(made, shown(item))
		}
		return map[string]any{"items": made, "remaining": list.GetRemainingItemCount()}
	}
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetUID("")
		accessor.SetResourceVersion("")
		accessor.SetCreationTimestamp(metav1.Time{})
		accessor.SetManagedFields(nil)
	}
	return object
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "whose clients")
	namespace := flag.String("namespace", "default", "of what is namespaced")
	prefix := flag.String("prefix", "typed", "of all names")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	config.QPS = -1 // no limit: nobody else wants anything of the server
	p := &program{recorder: &recorder{}, ctx: context.Background(), out: json.NewEncoder(os.Stdout)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { p.next = next; return p })
	client, err := resourceclient.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	p.classes(client.DeviceClasses(), *prefix)
	p.slices(client.ResourceSlices(), *prefix)
	p.claims(client.ResourceClaims(*namespace), *prefix)
	p.templates(client.ResourceClaimTemplates(*namespace), *prefix)
}

func (p *program) classes(client resourceclient.DeviceClassInterface, prefix string) {
	labels := map[string]string{"made-by": prefix}
	mine := metav1.ListOptions{LabelSelector: "made-by=" + prefix}
	class := func(name string, expression string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Labels: labels},
			Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
				Config: []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
					Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver:     "gpu.example.com",
						Parameters: runtime.RawExtension{Raw: []byte(`{"b":[1,"a"],"a":null}`)},
					},
				}}},
			},
		}
	}
	first, err := client.Create(p.ctx, class("-a", "true"), metav1.CreateOptions{FieldManager: "typed"})
	p.call("create class", first, err)
	p.hide = append(p.hide, string(first.UID))
	found, err := client.Create(p.ctx, class("-b", "device.driver == 'd'"), metav1.CreateOptions{})
	p.call("create another", found, err)
	found, err = client.Create(p.ctx, class("-c", "true"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	p.call("create dry", found, err)
	found, err = client.Create(p.ctx, class("-a", "true"), metav1.CreateOptions{})
	p.call("create again", found, err)
	found, err = client.Create(p.ctx, class("-d", "device.nothing"), metav1.CreateOptions{})
	p.call("create a wrong one", found, err)
	found, err = client.Get(p.ctx, prefix+"-a", metav1.GetOptions{})
	p.call("get", found, err)
	found, err = client.Get(p.ctx, prefix+"-none", metav1.GetOptions{})
	p.call("get nothing", found, err)

	list, err := client.List(p.ctx, mine)
	p.call("list", list, err)
	chunk, whole := mine, &resourceapi.DeviceClassList{}
	for chunk.Limit = 1; ; {
		part, err := client.List(p.ctx, chunk)
		if err != nil {
			log.Fatal(err)
		}
		whole.Items = append(whole.Items, part.Items...)
		// A chunk may be empty, where others have classes after ours.
		if chunk.Continue = part.Continue; chunk.Continue == "" {
			break
		}
	}
	p.taken()
	p.call("list in chunks", whole, nil)
	all := true
	from := metav1.ListOptions{
		LabelSelector: mine.LabelSelector, AllowWatchBookmarks: true, SendInitialEvents: &all,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	watching, err := client.Watch(p.ctx, from)
	p.watch("watch a list", watching, err, watch.Bookmark)

	changed := first.DeepCopy()
	changed.Annotations = map[string]string{"note": "ünï"}
	changed, err = client.Update(p.ctx, changed, metav1.UpdateOptions{})
	p.call("update", changed, err)
	same, err := client.Update(p.ctx, changed, metav1.UpdateOptions{})
	p.call("update without change", same, err)
	found, err = client.Update(p.ctx, first, metav1.UpdateOptions{})
	p.call("update an old version", found, err)
	patch := []byte(`[{"op": "add", "path": "/metadata/annotations/more", "value": "x"}]`)
	found, err = client.Patch(p.ctx, prefix+"-a", types.JSONPatchType, patch, metav1.PatchOptions{})
	p.call("patch as JSON", found, err)
	patch = []byte(`{"spec": {"extendedResourceName": "example.com/gpu"}}`)
	found, err = client.Patch(p.ctx, prefix+"-a", types.MergePatchType, patch, metav1.PatchOptions{})
	p.call("patch by merging", found, err)

	wrong, right := types.UID("0f8fad5b-d9cb-469f-a165-70867728950e"), first.UID
	err = client.Delete(p.ctx, prefix+"-a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	p.call("delete something else", nil, err)
	err = client.Delete(p.ctx, prefix+"-a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &right}})
	p.call("delete", nil, err)
	err = client.DeleteCollection(p.ctx, metav1.DeleteOptions{}, mine)
	p.call("delete all", nil, err)
	watching, err = client.Watch(p.ctx, metav1.ListOptions{
		LabelSelector: mine.LabelSelector, ResourceVersion: first.ResourceVersion, FieldSelector: "metadata.name=" + prefix + "-a",
	})
	p.watch("watch what happened", watching, err, watch.Deleted)
}

func (p *program) slices(client resourceclient.ResourceSliceInterface, prefix string) {
	node, flag, text, number := prefix+"-node", true, "x", int64(-7)
	amount := resource.MustParse("1500Mi")
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-", Name: prefix + "-slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node,
			Pool: resourceapi.ResourcePool{Name: "pool", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{
				Name: "gpu-0",
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"model": {StringValue: &text}, "numa": {IntValue: &number}, "ok": {BoolValue: &flag},
				},
				Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: amount}},
				Taints: []resourceapi.DeviceTaint{{
					Key: "a", Effect: resourceapi.DeviceTaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: metav1.Unix(1700000000, 0).Time},
				}},
			}},
		},
	}
	found, err := client.Create(p.ctx, slice, metav1.CreateOptions{})
	p.call("create slice", found, err)
	list, err := client.List(p.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	p.call("list slices of a node", list, err)
	found.Spec.Driver = "another.example.com"
	found, err = client.Update(p.ctx, found, metav1.UpdateOptions{})
	p.call("change the driver", found, err)
	err = client.DeleteCollection(p.ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	p.call("delete slices of a node", nil, err)
}

func claimSpec() resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.example.com"},
	}}}}
}

func (p *program) claims(client resourceclient.ResourceClaimInterface, prefix string) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: prefix + "-claim"}, Spec: claimSpec()}
	found, err := client.Create(p.ctx, claim, metav1.CreateOptions{})
	p.call("create claim", found, err)
	found.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.example.com", Pool: "pool", Device: "gpu-0"}},
	}}
	found.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: "gpu.example.com", Pool: "pool", Device: "gpu-0", Data: &runtime.RawExtension{Raw: []byte(`{"b":{"a":null}}`)},
		NetworkData: &resourceapi.NetworkDeviceData{IPs: []string{"192.0.2.5/24"}},
	}}
	written, err := client.UpdateStatus(p.ctx, found, metav1.UpdateOptions{})
	p.call("update status", written, err)
	_, err = client.UpdateStatus(p.ctx, found, metav1.UpdateOptions{})
	p.call("update the status of an old version", nil, err)
	read, err := client.Get(p.ctx, prefix+"-claim", metav1.GetOptions{ResourceVersion: "0"})
	p.call("get claim", read, err)
	err = client.Delete(p.ctx, prefix+"-claim", metav1.DeleteOptions{})
	p.call("delete claim", nil, err)
}

func (p *program) templates(client resourceclient.ResourceClaimTemplateInterface, prefix string) {
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: prefix + "-template", Finalizers: []string{"example.com/held"}},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: claimSpec()},
	}
	found, err := client.Create(p.ctx, template, metav1.CreateOptions{})
	p.call("create template", found, err)
	background := metav1.DeletePropagationBackground
	err = client.Delete(p.ctx, found.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	p.call("delete a held template", nil, err)
	found, err = client.Patch(p.ctx, found.Name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	if err == nil {
		found.DeletionTimestamp = nil
	}
	p.call("let go of the template", found, err)
}
