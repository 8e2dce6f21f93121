/** The root of the machine around and of the VM in it: made on the outside, where there are tools for it. */
export const IMAGE = { ref: 'debootstrap:trixie', packages: ['ca-certificates', 'curl', 'libatomic1'] }
