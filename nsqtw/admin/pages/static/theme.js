// Sets the stored choice of light or dark before the page is drawn.
const theme = localStorage.getItem("nsqadmin-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
