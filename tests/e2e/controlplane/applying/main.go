// client-go's apply configurations of resource.k8s.io/v1, as drivers and controllers use them: Apply, ApplyStatus, what Extract finds of
// one's own, conflicts, and the way from client-side apply. One JSON line for each call, with what came back. What no two servers have in
// common (uids, versions, times) is left out, and entries of managedFields stand in an order that no second decides.
//
//	applying -kubeconfig FILE -namespace NAME -prefix NAME [-protobuf]
//
// Lines: {"call":"apply slice","object":{…}} {"call":"conflict","status":{…},"conflict":true} {"call":"extract","applied":{…}}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"sort"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/resource/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/csaupgrade"
)

const (
	protobuf    = "application/vnd.kubernetes.protobuf"
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

type line struct {
	Call     string         `json:"call"`
	Object   any            `json:"object,omitempty"`
	Applied  any            `json:"applied,omitempty"`
	Status   *metav1.Status `json:"status,omitempty"`
	Conflict bool           `json:"conflict,omitempty"`
	Causes   []string       `json:"causes,omitempty"`
	// Same says whether the object still has the version that it had before.
	Same bool `json:"same,omitempty"`
}

type program struct {
	ctx     context.Context
	out     *json.Encoder
	version map[types.UID]string
}

// call tells what came of it: an object, or an error with its Status.
func (p *program) call(name string, object runtime.Object, err error) {
	l := line{Call: name}
	if err != nil {
		l.Status, l.Conflict = status(err), apierrors.IsConflict(err)
		l.Causes = conflicts(err)
	} else {
		l.Same = p.known(object)
		l.Object = shown(object)
	}
	p.tell(l)
}

func (p *program) tell(l line) {
	if err := p.out.Encode(l); err != nil {
		log.Fatal(err)
	}
}

// known keeps the version of an object, and says whether it was that one already.
func (p *program) known(object runtime.Object) bool {
	accessor := must(meta.Accessor(object))
	same := p.version[accessor.GetUID()] == accessor.GetResourceVersion()
	p.version[accessor.GetUID()] = accessor.GetResourceVersion()
	return same
}

func status(err error) *metav1.Status {
	var told apierrors.APIStatus
	if !errors.As(err, &told) {
		log.Fatal(err)
	}
	found := told.Status()
	if found.Details != nil {
		sort.SliceStable(found.Details.Causes, func(i, j int) bool {
			return found.Details.Causes[i].Message < found.Details.Causes[j].Message
		})
	}
	return &found
}

// conflicts are the fields that another manager has, as controllers find them.
func conflicts(err error) []string {
	fields := []string{}
	var told *apierrors.StatusError
	if !errors.As(err, &told) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fields
	}
	for _, cause := range told.ErrStatus.Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, cause.Field)
		}
	}
	sort.Strings(fields)
	return fields
}

func shown(object runtime.Object) any {
	object = object.DeepCopyObject()
	accessor := must(meta.Accessor(object))
	accessor.SetUID("")
	accessor.SetResourceVersion("")
	accessor.SetCreationTimestamp(metav1.Time{})
	entries := accessor.GetManagedFields()
	for i := range entries {
		if entries[i].Time != nil {
			entries[i].Time = &metav1.Time{Time: metav1.Unix(0, 0).Time}
		}
	}
	sort.SliceStable(entries, func(i, j int) bool { return order(entries[i]) < order(entries[j]) })
	accessor.SetManagedFields(entries)
	return object
}

func order(entry metav1.ManagedFieldsEntry) string {
	return strings.Join([]string{string(entry.Operation), entry.Manager, entry.Subresource}, " ")
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "whose clients")
	namespace := flag.String("namespace", "default", "of what is namespaced")
	prefix := flag.String("prefix", "applying", "of all names")
	binary := flag.Bool("protobuf", false, "answers in protobuf, as clients of Kubernetes' own kinds ask for them")
	flag.Parse()
	config := must(clientcmd.BuildConfigFromFlags("", *kubeconfig))
	config.QPS = -1 // no limit: nobody else wants anything of the server
	if *binary {
		config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	}
	client := must(resourceclient.NewForConfig(config))
	p := &program{ctx: context.Background(), out: json.NewEncoder(os.Stdout), version: map[types.UID]string{}}
	p.slices(client.ResourceSlices(), *prefix)
	p.claims(client.ResourceClaims(*namespace), *namespace, *prefix)
	p.classes(client.DeviceClasses(), *prefix)
	p.templates(client.ResourceClaimTemplates(*namespace), *namespace, *prefix)
}

func as(manager string) metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: manager}
}

func forced(manager string) metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: manager, Force: true}
}

// slices are published by two drivers that do not agree.
func (p *program) slices(client resourceclient.ResourceSliceInterface, prefix string) {
	slice := func(generation int64, devices ...string) *apply.ResourceSliceApplyConfiguration {
		spec := apply.ResourceSliceSpec().WithDriver("gpu.example.com").WithNodeName("n1").
			WithPool(apply.ResourcePool().WithName("n1").WithGeneration(generation).WithResourceSliceCount(1))
		for _, name := range devices {
			spec.WithDevices(apply.Device().WithName(name).
				WithAttributes(map[resourceapi.QualifiedName]apply.DeviceAttributeApplyConfiguration{
					"model": *apply.DeviceAttribute().WithStringValue("x"),
				}))
		}
		return apply.ResourceSlice(prefix + "-slice").WithLabels(map[string]string{"by": "one"}).WithSpec(spec)
	}
	found, err := client.Apply(p.ctx, slice(1, "gpu-0"), metav1.ApplyOptions{FieldManager: "one", DryRun: []string{metav1.DryRunAll}})
	p.call("apply dry", found, err)
	found, err = client.Apply(p.ctx, slice(1, "gpu-0"), as("one"))
	p.call("apply slice", found, err)
	found, err = client.Apply(p.ctx, slice(1, "gpu-0"), as("one"))
	p.call("apply again", found, err)
	_, err = client.Apply(p.ctx, slice(2, "gpu-0", "gpu-1"), as("two"))
	p.call("apply another", nil, err)
	found, err = client.Apply(p.ctx, slice(2, "gpu-0", "gpu-1"), forced("two"))
	p.call("apply by force", found, err)
	p.tell(line{Call: "extract what is left", Applied: must(apply.ExtractResourceSlice(found, "one"))})
	mine := must(apply.ExtractResourceSlice(found, "two"))
	p.tell(line{Call: "extract what was taken", Applied: mine})
	mine.Labels = nil
	found, err = client.Apply(p.ctx, mine, as("two"))
	p.call("give up the labels", found, err)
	_, err = client.Apply(p.ctx, slice(1).WithUID("0f8fad5b-d9cb-469f-a165-70867728950e"), forced("one"))
	p.call("apply to something else", nil, err)
	_, err = client.Apply(p.ctx, slice(1).WithResourceVersion("1"), forced("one"))
	p.call("apply to an old version", nil, err)
	if err := client.Delete(p.ctx, prefix+"-slice", metav1.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
}

// claims are allocated by a scheduler; drivers tell of their devices.
func (p *program) claims(client resourceclient.ResourceClaimInterface, namespace, prefix string) {
	name := prefix + "-claim"
	result := func(device string) resourceapi.DeviceRequestAllocationResult {
		return resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: "gpu.example.com", Pool: "n1", Device: device}
	}
	report := func(device string, state metav1.ConditionStatus, data string) *apply.AllocatedDeviceStatusApplyConfiguration {
		return apply.AllocatedDeviceStatus().WithDriver("gpu.example.com").WithPool("n1").WithDevice(device).
			WithConditions(metaapply.Condition().WithType("Ready").WithStatus(state).WithReason("Up").WithMessage("").
				WithLastTransitionTime(metav1.Unix(1700000000, 0))).
			WithData(runtime.RawExtension{Raw: []byte(data)}).
			WithNetworkData(apply.NetworkDeviceData().WithInterfaceName("eth0").WithIPs("192.0.2.5/24"))
	}
	claim := func(devices ...*apply.AllocatedDeviceStatusApplyConfiguration) *apply.ResourceClaimApplyConfiguration {
		return apply.ResourceClaim(name, namespace).WithStatus(apply.ResourceClaimStatus().WithDevices(devices...))
	}
	_, err := client.ApplyStatus(p.ctx, claim(report("gpu-0", metav1.ConditionTrue, `{}`)), forced("driver"))
	p.call("apply the status of nothing", nil, err)
	wanted := apply.ResourceClaim(name, namespace).WithSpec(apply.ResourceClaimSpec().WithDevices(apply.DeviceClaim().
		WithRequests(apply.DeviceRequest().WithName("gpu").WithExactly(apply.ExactDeviceRequest().WithDeviceClassName("gpu")))))
	found, err := client.Apply(p.ctx, wanted, as("user"))
	p.call("apply claim", found, err)
	found.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{result("gpu-0"), result("gpu-1")},
	}}
	found, err = client.UpdateStatus(p.ctx, found, metav1.UpdateOptions{FieldManager: "scheduler"})
	p.call("allocate", found, err)
	found, err = client.ApplyStatus(p.ctx, claim(report("gpu-0", metav1.ConditionTrue, `{"b":[1],"a":null}`)), forced("driver"))
	p.call("apply status", found, err)
	found, err = client.ApplyStatus(p.ctx, claim(report("gpu-1", metav1.ConditionFalse, `{}`)), forced("other"))
	p.call("apply the status of another device", found, err)
	mine := must(apply.ExtractResourceClaimStatus(found, "driver"))
	p.tell(line{Call: "extract status", Applied: mine})
	p.tell(line{Call: "extract no status", Applied: must(apply.ExtractResourceClaim(found, "driver"))})
	p.tell(line{Call: "extract claim", Applied: must(apply.ExtractResourceClaim(found, "user"))})
	mine.Status.Devices[0].Conditions[0].WithStatus(metav1.ConditionFalse)
	found, err = client.ApplyStatus(p.ctx, mine, as("driver"))
	p.call("apply what was extracted", found, err)
	_, err = client.ApplyStatus(p.ctx, claim(report("gpu-0", metav1.ConditionTrue, `[]`)), as("other"))
	p.call("apply the status of somebody else's device", nil, err)
	found, err = client.ApplyStatus(p.ctx, claim(), as("driver"))
	p.call("give up the status", found, err)
	if err := client.Delete(p.ctx, name, metav1.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
}

// classes were applied by clients before; a server takes them over.
func (p *program) classes(client resourceclient.DeviceClassInterface, prefix string) {
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        prefix + "-class",
			Labels:      map[string]string{"a": "1", "b": "1"},
			Annotations: map[string]string{lastApplied: "{}"},
		},
		Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "true"}}},
		},
	}
	found, err := client.Create(p.ctx, class, metav1.CreateOptions{FieldManager: "client"})
	p.call("create class", found, err)
	patch := must(csaupgrade.UpgradeManagedFieldsPatch(found, sets.New("client"), "server"))
	found, err = client.Patch(p.ctx, class.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	p.call("upgrade", found, err)
	_, err = client.Patch(p.ctx, class.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	p.call("upgrade an old version", nil, err)
	rest := must(csaupgrade.UpgradeManagedFieldsPatch(found, sets.New("client"), "server"))
	p.tell(line{Call: "nothing to upgrade", Applied: string(rest)})
	p.tell(line{Call: "extract class", Applied: must(apply.ExtractDeviceClass(found, "server"))})
	less := apply.DeviceClass(class.Name).WithLabels(map[string]string{"a": "1"}).WithSpec(apply.DeviceClassSpec().
		WithSelectors(apply.DeviceSelector().WithCEL(apply.CELDeviceSelector().WithExpression("true"))))
	found, err = client.Apply(p.ctx, less, as("server"))
	p.call("apply less", found, err)
	_, err = client.Apply(p.ctx, less, metav1.ApplyOptions{})
	p.call("apply without a manager", nil, err)
	found.Labels["c"] = "1"
	found, err = client.Update(p.ctx, found, metav1.UpdateOptions{FieldManager: "third"})
	p.call("update", found, err)
	found.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	found, err = client.Update(p.ctx, found, metav1.UpdateOptions{FieldManager: "third"})
	p.call("forget who manages it", found, err)
	found, err = client.Apply(p.ctx, less, forced("server"))
	p.call("apply afterwards", found, err)
	if err := client.Delete(p.ctx, class.Name, metav1.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
}

// templates hold metadata that is managed as any other field.
func (p *program) templates(client resourceclient.ResourceClaimTemplateInterface, namespace, prefix string) {
	template := apply.ResourceClaimTemplate(prefix+"-template", namespace).WithFinalizers("example.com/held").
		WithSpec(apply.ResourceClaimTemplateSpec().WithLabels(map[string]string{"a": "1"}).
			WithSpec(apply.ResourceClaimSpec().WithDevices(apply.DeviceClaim().
				WithRequests(apply.DeviceRequest().WithName("gpu").WithExactly(apply.ExactDeviceRequest().WithDeviceClassName("gpu"))))))
	found, err := client.Apply(p.ctx, template, as("one"))
	p.call("apply template", found, err)
	p.tell(line{Call: "extract template", Applied: must(apply.ExtractResourceClaimTemplate(found, "one"))})
	template.Finalizers = []string{"example.com/more"}
	_, err = client.Apply(p.ctx, template, as("two"))
	p.call("hold it too", nil, err)
	found, err = client.Apply(p.ctx, template, forced("two"))
	p.call("hold it by force", found, err)
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	found, err = client.Patch(p.ctx, *template.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "three"})
	p.call("let go of the template", found, err)
	if err := client.Delete(p.ctx, *template.Name, metav1.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
}
